"""Kernels that find rows in pages and copy them out, straight from the bytes of the file.

A row is named by two numbers: the *slot* of its page (a page's place among those at hand; in a map its number) and its
row on that page. For each buffer of a column, `starts[slot]` is the byte at which that page's buffer begins; -1 says
that the page has no such buffer. Arrays view the whole file, or the whole disk buffer, at once: a slice for each row
would cost more than the copy.

What makes them fast on data that is not in the processor's cache:

- `locate` guesses where a code stands between the first code of its page and that of the next, which the index knows,
  and looks around there. Codes are either numbers, often dense, or hashes, evenly spread; in both cases the guess is a
  few rows off at most, and it is known early enough to be fetched ahead. A page with a strange distribution costs a
  binary search.
- What is read at random is read through pointers (`pointer_to`): the index of an array is tested for "counted from the
  end", which costs `find_strings` a sixth.
- `copy_strings` moves 32 bytes at a time and lets each string overwrite the overhang of the one before. So what it
  reads must be followed by 32 readable bytes, and its target by 32 writable ones (`OVERHANG_BYTES`). Byte by byte it
  takes seven times as long.
"""

from __future__ import annotations

import numpy as np

from semistream.structures.compiled import (
    BOOL,
    I64,
    READ_I16,
    READ_I32,
    READ_I64,
    READ_U8,
    VOID,
    WRITE_I16,
    WRITE_I32,
    WRITE_I64,
    WRITE_U8,
    Array,
    kernel,
)
from semistream.structures.raw_memory import FETCH_AHEAD_ROWS, OVERHANG_BYTES, copy_32_bytes, fetch, pointer_to

CODE_BYTES_LOG2 = 3


@kernel(I64(READ_I64, READ_I64, I64, WRITE_I64, WRITE_I64))
def find_pages(first_codes: Array, codes: Array, first_page: int, pages: Array, distinct_pages: Array) -> int:
    """Find the page of each of some ascending codes, none of them before the first page.

    Pages are numbered from `first_page`. Returns how many distinct ones there are.
    """
    firsts = pointer_to(first_codes)
    last = first_codes.size - 1
    page = distinct_count = 0
    for i in range(codes.size):
        code = codes[i]
        # From where the last code was, in steps that grow as long as they do not pass this one, then shrink.
        step = 1
        while page + step <= last and firsts[page + step] <= code:
            page += step
            step *= 2
        while step > 1:
            step >>= 1
            if page + step <= last and firsts[page + step] <= code:
                page += step
        pages[i] = first_page + page
        if i == 0 or pages[i] != pages[i - 1]:
            distinct_pages[distinct_count] = pages[i]
            distinct_count += 1
    return distinct_count


@kernel(VOID(READ_I64, READ_I64, READ_I64, READ_I64, READ_I64, BOOL, READ_I64, READ_I64, WRITE_I64, WRITE_I64))
def locate(
    word_array: Array,
    start_array: Array,
    slots: Array,
    row_counts: Array,
    first_codes: Array,
    is_unique: bool,
    codes: Array,
    pages: Array,
    rows: Array,
    counts: Array,
) -> None:
    """Find the rows of each code on its page: the first in `rows`, how many in `counts`.

    `word_array` holds the code buffers; `codes[i]` is looked for on the page with the number `pages[i]`, in `slots[i]`.
    Its codes lie about between its first code and that of the next page; where those are no guide, the page itself is
    asked. Where no code has two rows (`is_unique`), a guess that is right needs no look at its neighbours.
    """
    words, starts = pointer_to(word_array), pointer_to(start_array)
    row_count_of, first_code_of = pointer_to(row_counts), pointer_to(first_codes)
    for i in range(codes.size):
        count = row_count_of[pages[i]]
        low = np.float64(first_code_of[pages[i]])
        span = np.float64(first_code_of[min(pages[i] + 1, first_codes.size - 1)]) - low
        if span <= 0:
            last = (starts[slots[i]] >> CODE_BYTES_LOG2) + count - 1
            span = (np.float64(words[last]) - low) * count / max(1, count - 1)
        guess = (np.float64(codes[i]) - low) / span * count if span > 0 else 0.0
        # While it is a fraction: what is too large for an integer has no value as one.
        rows[i] = np.int64(min(max(guess, 0.0), count - 1.0))
    for i in range(codes.size):
        ahead = min(i + FETCH_AHEAD_ROWS, codes.size - 1)
        fetch(word_array, (starts[slots[ahead]] >> CODE_BYTES_LOG2) + rows[ahead])
        begin = starts[slots[i]] >> CODE_BYTES_LOG2
        code = codes[i]
        if is_unique and words[begin + rows[i]] == code:
            counts[i] = 1
            continue
        count = row_count_of[pages[i]]
        # The first row that is not smaller stands in [low, high].
        step = 1
        if words[begin + rows[i]] < code:
            low_row = rows[i] + 1
            while low_row + step < count and words[begin + low_row + step] < code:
                low_row += step
                step *= 2
            high_row = min(count, low_row + step)
        else:
            high_row = rows[i]
            while high_row - step >= 0 and words[begin + high_row - step] >= code:
                high_row -= step
                step *= 2
            low_row = max(0, high_row - step)
        while low_row < high_row:
            middle = (low_row + high_row) >> 1
            if words[begin + middle] < code:
                low_row = middle + 1
            else:
                high_row = middle
        while high_row < count and words[begin + high_row] == code:
            high_row += 1
        rows[i] = low_row
        counts[i] = high_row - low_row


@kernel(VOID(READ_I64, READ_I64, READ_I64, READ_I64, I64, WRITE_I64, WRITE_I64, WRITE_I64))
def list_rows(
    codes: Array,
    slots: Array,
    rows: Array,
    rows_until: Array,
    begin: int,
    out_codes: Array,
    out_slots: Array,
    out_rows: Array,
) -> None:
    """Name the rows `begin`, `begin + 1`, ... of all rows found; as many as the output holds.

    Code `i` has the rows from `rows[i]` on; `rows_until[i]` counts the rows of all codes up to it.
    """
    i = np.searchsorted(rows_until, begin, side="right")
    for out in range(out_codes.size):
        row = begin + out
        while rows_until[i] <= row:
            i += 1
        before = rows_until[i - 1] if i > 0 else 0
        out_codes[out] = codes[i]
        out_slots[out] = slots[i]
        out_rows[out] = rows[i] + row - before


@kernel(
    VOID(READ_U8, I64, READ_I64, READ_I64, READ_I64, WRITE_U8),
    VOID(READ_I16, I64, READ_I64, READ_I64, READ_I64, WRITE_I16),
    VOID(READ_I32, I64, READ_I64, READ_I64, READ_I64, WRITE_I32),
    VOID(READ_I64, I64, READ_I64, READ_I64, READ_I64, WRITE_I64),
)
def gather_values(source: Array, width_log2: int, start_array: Array, slots: Array, rows: Array, target: Array) -> None:
    """Copy values of 1, 2, 4 or 8 bytes, which is 2^`width_log2`."""
    values, starts = pointer_to(source), pointer_to(start_array)
    for i in range(rows.size):
        ahead = min(i + FETCH_AHEAD_ROWS, rows.size - 1)
        fetch(source, (starts[slots[ahead]] >> width_log2) + rows[ahead])
        target[i] = values[(starts[slots[i]] >> width_log2) + rows[i]]


@kernel(VOID(READ_U8, READ_I64, READ_I64, READ_I64, I64, WRITE_U8))
def gather_wide_values(source: Array, starts: Array, slots: Array, rows: Array, width: int, target: Array) -> None:
    """Copy values of any fixed number of bytes; see `OVERHANG_BYTES`."""
    for i in range(rows.size):
        begin = starts[slots[i]] + rows[i] * width
        for at in range(0, width, OVERHANG_BYTES):
            copy_32_bytes(target, i * width + at, source, begin + at)


@kernel(VOID(READ_U8, READ_I64, READ_I64, READ_I64, WRITE_U8))
def gather_bits(source: Array, starts: Array, slots: Array, rows: Array, target: Array) -> None:
    """Copy bits into a target of zeros; where the page has no such buffer the bit is set, as for validity."""
    for i in range(rows.size):
        start = starts[slots[i]]
        if start < 0 or source[start + (rows[i] >> 3)] & (1 << (rows[i] & 7)):
            target[i >> 3] |= np.uint8(1 << (i & 7))


@kernel(
    VOID(READ_I32, I64, READ_I64, READ_I64, READ_I64, READ_I64, WRITE_I64, WRITE_I64),
    VOID(READ_I64, I64, READ_I64, READ_I64, READ_I64, READ_I64, WRITE_I64, WRITE_I64),
)
def find_strings(
    source: Array,
    width_log2: int,
    offset_starts: Array,
    value_starts: Array,
    slots: Array,
    rows: Array,
    sources: Array,
    until: Array,
) -> None:
    """Find where each string begins (`sources`) and the bytes of all strings up to it (`until[i + 1]`).

    Offsets have 2^`width_log2` bytes.
    """
    offsets, starts, values = pointer_to(source), pointer_to(offset_starts), pointer_to(value_starts)
    total = np.int64(0)
    until[0] = 0
    for i in range(rows.size):
        ahead = min(i + FETCH_AHEAD_ROWS, rows.size - 1)
        fetch(source, (starts[slots[ahead]] >> width_log2) + rows[ahead])
        at = (starts[slots[i]] >> width_log2) + rows[i]
        begin = np.int64(offsets[at])
        total += np.int64(offsets[at + 1]) - begin
        sources[i] = values[slots[i]] + begin
        until[i + 1] = total


@kernel(VOID(READ_U8, READ_I64, READ_I64, WRITE_U8))
def copy_strings(source: Array, sources: Array, until: Array, target: Array) -> None:
    """Copy the strings that `find_strings` found one after another; see `OVERHANG_BYTES`."""
    for i in range(sources.size):
        fetch(source, sources[min(i + FETCH_AHEAD_ROWS, sources.size - 1)])
        at = until[i]
        begin = sources[i] - at
        while at < until[i + 1]:
            copy_32_bytes(target, at, source, begin + at)
            at += OVERHANG_BYTES

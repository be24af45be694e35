"""The checksum of pages and files: fast enough to look at every byte once.

Eight lanes take the 64-bit words in turn, so that the processor works on eight multiplications at a time and the
memory is the limit (well over 5 GB/s). Each step of a lane, and of the final fold of the lanes, can be undone for a
known word; so two inputs of the same length that differ in one word, and the more so in one bit, never have the same
checksum. Other damage goes unseen with a chance of about 2^-64. It is no defence against somebody who means harm.

Checksums stand in files: another definition is another `manifest.FORMAT_VERSION`, and a test pins values.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from semistream.structures.compiled import I64, READ_I64, Array, inlined, kernel

WORD_BYTES = 8
_PIECE_BYTES = 64 * 1024
"""A file's end grows with the number of its pages, so it is not held as a whole."""

_ODD = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


@inlined
def _mixed(state: Any, word: Any) -> Any:
    # Multiplying carries a flipped bit only upwards, and not at all from the top; the shift brings it down again, so
    # that a second flipped bit in the next word cannot undo it.
    product = (state ^ np.uint64(word)) * _ODD
    return product ^ (product >> _HALF)


@kernel(I64(READ_I64, I64, I64))
def checksum_words(words: Array, start: int, count: int) -> int:
    """Return the checksum of `count` words from position `start`."""
    a = np.uint64(1)
    b = np.uint64(2)
    c = np.uint64(3)
    d = np.uint64(4)
    e = np.uint64(5)
    f = np.uint64(6)
    g = np.uint64(7)
    h = np.uint64(8)
    # Unsigned positions: a signed one would be tested for "counted from the end" at every word.
    at = np.uint64(start)
    for _ in range(count // 8):
        a = _mixed(a, words[at])
        b = _mixed(b, words[at + np.uint64(1)])
        c = _mixed(c, words[at + np.uint64(2)])
        d = _mixed(d, words[at + np.uint64(3)])
        e = _mixed(e, words[at + np.uint64(4)])
        f = _mixed(f, words[at + np.uint64(5)])
        g = _mixed(g, words[at + np.uint64(6)])
        h = _mixed(h, words[at + np.uint64(7)])
        at += np.uint64(8)
    for _ in range(count % 8):
        a = _mixed(a, words[at])
        at += np.uint64(1)
    folded = np.uint64(count)
    for lane in (a, b, c, d, e, f, g, h):
        folded = _mixed(folded, lane)
    return np.int64(folded)  # type: ignore[return-value]


@kernel(I64(READ_I64, READ_I64, READ_I64, READ_I64))
def first_damaged(words: Array, starts: Array, counts: Array, checksums: Array) -> int:
    """Return the first of several ranges of words whose checksum is not the expected one, or -1."""
    for i in range(starts.size):
        if checksum_words(words, starts[i], counts[i]) != checksums[i]:
            return i
    return -1


def checksum_bytes(content: npt.NDArray[np.uint8]) -> int:
    """Return the checksum of any number of bytes, which begin at a whole word in memory."""
    whole = len(content) // WORD_BYTES * WORD_BYTES
    end = np.zeros(3, np.int64)
    end[0] = checksum_words(content[:whole].view(np.int64), 0, whole // WORD_BYTES)
    end[1:2].view(np.uint8)[: len(content) - whole] = content[whole:]
    end[2] = len(content)
    return int(checksum_words(end, 0, len(end)))


def checksum_around(descriptor: int, begin: int, end: int, file_bytes: int) -> int:
    """Return the checksum of the bytes of a file before `begin` and from `end` on."""
    starts = [*range(0, begin, _PIECE_BYTES), *range(end, file_bytes, _PIECE_BYTES)]
    checksums = [len(starts)]
    for start in starts:
        stop = min(start + _PIECE_BYTES, begin if start < begin else file_bytes)
        checksums.append(checksum_bytes(np.frombuffer(os.pread(descriptor, stop - start, start), np.uint8)))
    return int(checksum_words(np.array(checksums), 0, len(checksums)))

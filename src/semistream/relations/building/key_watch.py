"""Finds out whether a key occurs twice, while sorted rows pass by.

Sorted means here that rows of one code follow each other and codes ascend within a batch: whether they fall between two
batches, as from one hash partition to the next, makes no difference.

Rows of equal keys have equal codes and so pass one after the other, but where codes are hashes different keys may share
one. Rows of one code are therefore compared by their real keys: each with its successor, then with the one after that,
and so on. The first equal pair settles the question. Among any n+1 rows of n different keys two are equal, so there are
never more turns than different keys share a code: without a collision, one.

Memory: rows of the last code of a batch are kept, for it may go on in the next. Their keys all differ, or the question
would be settled, so there is one row, or a few that collide.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from semistream.errors import DuplicateKey
from semistream.keys import Rows, keys_equal
from semistream.relations.base import CODE_COLUMN, Codes


class KeyWatch:
    """Watches batches of rows, ascending by code, for the first key that occurs twice.

    Example:
        >>> watch = KeyWatch(("name",), exact=False)
        >>> codes, names = pa.array([5, 5, 8]), pa.array(["ant", "bee", "cow"])
        >>> watch.see(pa.record_batch([codes, names], names=[CODE_COLUMN, "name"]))
        >>> watch.unique  # ant and bee only share a code
        True
    """

    def __init__(self, key: tuple[str, ...], *, exact: bool) -> None:
        self._key = key
        self._exact = exact
        self._open_rows: pa.RecordBatch | None = None
        """Rows of the last code seen, which may go on; their keys all differ."""
        self._repeated: pa.RecordBatch | None = None
        """One row: the first key that was found twice."""
        self._repeated_rows = 0
        self._repeated_code_ended = False

    @property
    def unique(self) -> bool:
        """No key was seen twice so far."""
        return self._repeated is None

    def see(self, rows: pa.RecordBatch) -> None:
        """Look at the next rows."""
        if rows.num_rows == 0:
            return
        keys = rows.select([CODE_COLUMN, *self._key])
        if self._repeated is not None:
            self._count(keys)
            return
        if self._open_rows is not None and _codes(self._open_rows)[0] == _codes(keys)[0]:
            keys = pa.concat_batches([self._open_rows, keys])
        row = self._first_repeated_row(keys)
        if row is None:
            codes = _codes(keys)
            self._open_rows = keys.slice(int(np.searchsorted(codes, codes[-1])))
        else:
            self._repeated = keys.slice(row, 1)
            self._open_rows = None
            self._count(keys)

    def refuse_repeated(self, *, at_end: bool) -> None:
        """Raise `DuplicateKey` if a key occurs twice, as soon as all its rows were seen."""
        if self._repeated is None or not (self._repeated_code_ended or at_end):
            return
        raise DuplicateKey(
            "a key occurs more than once",
            given=f"{described_key(self._repeated, self._key)} in {self._repeated_rows} rows",
            allowed="each key once, for `unique` is set",
            hint="remove the duplicates, of which there may be more, or build without `unique`",
        )

    def _first_repeated_row(self, keys: pa.RecordBatch) -> int | None:
        codes = _codes(keys)
        distance = 1
        candidates: Rows = np.flatnonzero(codes[1:] == codes[:-1])
        while len(candidates):
            if self._exact:
                return int(candidates[0])
            columns = self._columns(keys)
            equal = keys_equal(columns, candidates, columns, candidates + distance)
            if equal.any():
                return int(candidates[np.argmax(equal)])
            distance += 1
            candidates = candidates[candidates + distance < len(codes)]
            candidates = candidates[codes[candidates] == codes[candidates + distance]]
        return None

    def _count(self, keys: pa.RecordBatch) -> None:
        assert self._repeated is not None, "there is nothing to count"
        if self._repeated_code_ended:
            return
        codes = _codes(keys)
        code = _codes(self._repeated)[0]
        begin, end = int(np.searchsorted(codes, code, "left")), int(np.searchsorted(codes, code, "right"))
        rows = np.arange(begin, end)
        equal = keys_equal(self._columns(self._repeated), np.zeros_like(rows), self._columns(keys), rows)
        self._repeated_rows += int(np.count_nonzero(equal))
        self._repeated_code_ended = end < len(codes)

    def _columns(self, keys: pa.RecordBatch) -> list[pa.Array]:
        return [keys.column(name) for name in self._key]


def described_key(rows: pa.RecordBatch, key: tuple[str, ...]) -> str:
    """Return the key of the first row as a person reads it."""
    values: Mapping[str, object] = {name: rows.column(name)[0].as_py() for name in key}
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _codes(rows: pa.RecordBatch) -> Codes:
    codes: Codes = rows.column(0).to_numpy()
    return codes

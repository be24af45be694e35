"""A sample of a stream of keys that is taken while the stream passes by, in bounded memory.

The stream is *sampled by key*: a hash gives every code a place between 0 and 1, and codes below a threshold are kept,
with all their rows and the numbers of these. So what is kept looks like a smaller stream with the same skew. The
threshold is 1 at first, so that a stream that is small enough is kept whole, and halves whenever more than
`SAMPLED_KEYS_MAX` codes or `SAMPLED_ROWS_MAX` rows are kept; what lies above it is dropped, as if it had never been
kept. Where a few keys make up the stream, fewer of them would say nothing: then it is the older half of the rows that
is dropped, and the sample is one of the stream's end.

Memory: 16 bytes a row for at most `SAMPLED_ROWS_MAX` rows, 8 bytes a code, and twice that while something is dropped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from semistream.joins.base import NO_NUMBERS, Numbers

SAMPLED_KEYS_MAX = 1 << 18
"""Distinct keys that are followed one by one; of a stream with more a sample is taken."""

SAMPLED_KEYS_MIN = 1 << 12
"""Keys below which dropping some would change the shape of what is left."""

SAMPLED_ROWS_MAX = 1 << 20
"""Rows that are played against each memory. Where a sample leaves room for some fifty keys only, the hit share was
found to be off by two hundredths; with a thousand, by one."""

ROWS_AT_ONCE = 1 << 16
"""A longer batch is taken in pieces."""

_MIXER = np.uint64(0x9E3779B97F4A7C15)


class KeySample:
    """What is kept of a stream of key codes.

    Example:
        >>> sample = KeySample()
        >>> sample.add(np.array([7, 7, 9]))
        >>> sample.add(np.array([7]))
        >>> sample.stream_rows, sample.distinct_keys, sample.share
        (4, 2, 1.0)
        >>> [part.tolist() for part in sample.halves()]
        [[7, 7], [9, 7]]
    """

    def __init__(self) -> None:
        self.stream_rows = 0
        """Rows that have passed by."""
        self.share = 1.0
        """Of the keys, that is kept."""
        self.first_row = 0
        """The first row of the part of the stream that is sampled."""
        self._codes: list[Numbers] = []
        self._rows: list[Numbers] = []
        self._kept_rows = 0
        self._distinct = NO_NUMBERS

    @property
    def sampled_rows(self) -> int:
        """Rows of the stream of which this is a sample."""
        return self.stream_rows - self.first_row

    @property
    def distinct_keys(self) -> int:
        """Keys of the stream, as far as the sample tells."""
        return round(len(self._distinct) / self.share)

    def add(self, codes: Numbers) -> None:
        """Let the next rows of the stream pass by."""
        for begin in range(0, len(codes), ROWS_AT_ONCE):
            self._add_piece(codes[begin : begin + ROWS_AT_ONCE])

    def _add_piece(self, codes: Numbers) -> None:
        kept = np.flatnonzero(_places(codes) < self.share)
        self._codes.append(codes[kept])
        self._rows.append(kept + self.stream_rows)
        self._kept_rows += len(kept)
        self._distinct = np.union1d(self._distinct, codes[kept])
        self.stream_rows += len(codes)
        while len(self._distinct) > SAMPLED_KEYS_MAX:
            self._keep_fewer_keys()
        while self._kept_rows > SAMPLED_ROWS_MAX:
            if len(self._distinct) > SAMPLED_KEYS_MIN:
                self._keep_fewer_keys()
            else:
                self._drop_older_half()

    def _keep_fewer_keys(self) -> None:
        self.share /= 2
        codes, rows = self._gathered()
        self._replace(codes, rows, _places(codes) < self.share)

    def _drop_older_half(self) -> None:
        codes, rows = self._gathered()
        self.first_row = int(rows[len(rows) // 2])
        self._replace(codes, rows, rows >= self.first_row)

    def _replace(self, codes: Numbers, rows: Numbers, kept: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        self._codes, self._rows = [codes[kept]], [rows[kept]]
        self._kept_rows = len(self._codes[0])
        self._distinct = np.unique(self._codes[0])

    def halves(self) -> tuple[Numbers, Numbers]:
        """Codes of the sample from the first and from the second half of the stream, in its order."""
        codes, rows = self._gathered()
        middle = int(np.searchsorted(rows, self.first_row + self.sampled_rows // 2))
        return codes[:middle], codes[middle:]

    def _gathered(self) -> tuple[Numbers, Numbers]:
        if len(self._codes) > 1:
            self._codes, self._rows = [np.concatenate(self._codes)], [np.concatenate(self._rows)]
        return (self._codes[0], self._rows[0]) if self._codes else (NO_NUMBERS, NO_NUMBERS)


def _places(codes: Numbers) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A place between 0 and 1 for each code, the same for the same code."""
    bits = codes.astype(np.uint64) * _MIXER
    bits = (bits ^ (bits >> np.uint64(29))) * _MIXER
    return (bits >> np.uint64(11)).astype(np.float64) / float(1 << 53)

"""A relation whose n-th read fails, and which works again afterwards.

For tests that let every read fail once and then look whether a row was lost or doubled. A read is a page, a segment
or one batch of rows; they are counted together, from 1, those of all hash partitions with those of the whole.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from typing import Self

import pyarrow as pa

from semistream.relations.base import Codes, Relation
from semistream.relations.wrapping import WrappedRelation


class FailingRelation(WrappedRelation):
    """Raises an error at read number `nth`, once."""

    def __init__(self, inner: Relation, nth: int, error: OSError | None = None) -> None:
        assert nth >= 1, "reads are counted from 1"
        super().__init__(inner)
        self.reads = 0
        self._whole = self
        self._lock = threading.Lock()
        self._nth = nth
        self._error = OSError(errno.EIO, "this read was made to fail") if error is None else error

    def _wrapped(self, part: Relation) -> Self:
        wrapped = self._kind(part, self._nth, self._error)
        wrapped._whole = self._whole
        return wrapped

    def _count_read(self) -> None:
        whole = self._whole
        # Partitions may be read side by side, and one read alone shall fail.
        with whole._lock:
            whole.reads += 1
            is_nth = whole.reads == whole._nth
        if is_nth:
            raise whole._error

    def _read_page(self, code: int) -> pa.RecordBatch:
        self._count_read()
        return super()._read_page(code)

    def _read_segment(self, number: int) -> pa.RecordBatch:
        self._count_read()
        return super()._read_segment(number)

    def _read_rows(self, codes: Codes, bytes_max: int) -> Iterator[pa.RecordBatch]:
        # A call that finds nothing has read, too.
        self._count_read()
        for number, batch in enumerate(super()._read_rows(codes, bytes_max)):
            if number > 0:
                self._count_read()
            yield batch

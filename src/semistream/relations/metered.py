"""A relation on a disk of your choice: every read takes a stated time on a virtual clock.

The papers measured on disks that needed 10 ms to find a page; on today's flash the same ratios shrink. Metering
makes a figure comparable with theirs and the same on every machine. It charges what the device would need, and
nothing for what it gives back to the processor.

- A page by key: one seek and the bytes of the page.
- A scan: the bytes, and a seek only where it does not go on where the last read of the scan ended.
- A batch of keys: for each page that is touched a seek and the mean bytes of a page; for a store that does not count
  pages, a seek for each key and the bytes of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from semistream.clock import VirtualClock
from semistream.relations.base import Codes, Relation
from semistream.relations.wrapping import WrappedRelation


@dataclass(frozen=True, slots=True)
class IoProfile:
    """What a device needs for a read."""

    name: str
    seek_s: float
    """Time before the first byte of a read that does not follow the one before."""
    bytes_per_s: float
    """Rate of the bytes themselves."""

    def random_s(self, read_bytes: float) -> float:
        """Seconds of one read somewhere."""
        return self.seek_s + self.sequential_s(read_bytes)

    def sequential_s(self, read_bytes: float) -> float:
        """Seconds of a read that goes on where the last one ended."""
        return read_bytes / self.bytes_per_s


HDD = IoProfile("hdd", seek_s=10e-3, bytes_per_s=100e6)
SSD = IoProfile("ssd", seek_s=0.1e-3, bytes_per_s=500e6)
NVME = IoProfile("nvme", seek_s=0.02e-3, bytes_per_s=2.5e9)


class MeteredRelation(WrappedRelation):
    """Charges the time of every read to a virtual clock."""

    def __init__(self, inner: Relation, profile: IoProfile, clock: VirtualClock) -> None:
        super().__init__(inner)
        self._profile = profile
        self._clock = clock
        self._next_segment: int | None = None

    def _wrapped(self, part: Relation) -> Self:
        return self._kind(part, self._profile, self._clock)

    def _bytes_of(self, batch: pa.RecordBatch) -> int:
        """What is charged for a batch. Arrow adds up the buffers of all columns; who knows better may say so."""
        read_bytes: int = batch.nbytes
        return read_bytes

    def _read_page(self, code: int) -> pa.RecordBatch:
        page = super()._read_page(code)
        self._next_segment = None
        self._clock.advance(self._profile.random_s(self._bytes_of(page)))
        return page

    def _read_segment(self, number: int) -> pa.RecordBatch:
        page = super()._read_segment(number)
        in_order = number == self._next_segment
        self._next_segment = number + 1
        charge = self._profile.sequential_s if in_order else self._profile.random_s
        self._clock.advance(charge(self._bytes_of(page)))
        return page

    def _read_rows(self, codes: Codes, bytes_max: int) -> Iterator[pa.RecordBatch]:
        self._next_segment = None
        pages_before = self.page_reads
        if pages_before is None:
            self._clock.advance(len(codes) * self._profile.seek_s)
        for batch in super()._read_rows(codes, bytes_max):
            if pages_before is None:
                self._clock.advance(self._profile.sequential_s(self._bytes_of(batch)))
            else:
                self._charge_pages(pages_before)
            yield batch
            pages_before = self.page_reads
        if pages_before is not None:
            self._charge_pages(pages_before)

    def _charge_pages(self, pages_before: int) -> None:
        info = self.info
        page_bytes_mean = info.row_bytes_mean * info.row_count / max(1, info.page_count)
        touched = (self.page_reads or 0) - pages_before
        self._clock.advance(touched * self._profile.random_s(page_bytes_mean))

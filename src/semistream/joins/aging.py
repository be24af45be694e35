"""When counts of uses are halved: seldom while the stream is steady, at once and for good when it moves.

Counts that reach back far tell popular keys from lucky ones: with Zipf's exponent 0.5 a key at the border of a memory
for 5 % of the keys is asked for once in 50 000 rows, so ten times the memory in rows say nothing about it. But counts
that reach back far also hold on to yesterday. So the period between two halvings begins short, doubles with every
period that the stream was steady, and begins anew when fewer rows than before are answered from memory: then what was
counted is of another time and is forgotten.

How often the period has doubled also says how much evidence counts are, and so how far a newcomer must exceed what it
pushes out (`margin_deviations`): while all counts are new, chances are worth taking, and later they are mostly luck.

Steady is judged by the share of hits, `PROBES_PER_LOOK` probes an entry at a time. A fall counts when chance does not
explain it and it matters.
"""

from __future__ import annotations

from collections.abc import Sequence

PERIOD_MIN, PERIOD_MAX = 20, 640
"""Probes for each entry between two halvings."""

PROBES_PER_LOOK = 1
"""Probes for each entry before hits are compared with those before."""

PROBES_PER_LOOK_MIN = 1000

FALL_MIN = 0.1
"""Part of the hits that must be missing before counts are forgotten."""

FALL_DEVIATIONS = 6.0
"""How many standard deviations it must be besides."""

FOLLOW_RATE = 0.25
"""Weight of the newest look in what is expected of the next."""

ALL = 31
"""Halvings that leave nothing of a count."""

NUMBERS = 7
"""That say all that an `Aging` knows."""


class Aging:
    """Watches hits and says how often counts must be halved now.

    Example:
        >>> aging = Aging(entries=1000)
        >>> aging.note(probes=15_000, hits=9_000)
        >>> aging.due()
        0
        >>> aging.note(probes=5_000, hits=3_000)
        >>> aging.due()
        1
        >>> aging.note(probes=5_000, hits=500)
        >>> aging.due()
        31
    """

    def __init__(self, entries: int) -> None:
        self.entries = entries
        self._period = PERIOD_MIN
        self._probes = 0
        """Since the last halving."""
        self._counted_probes = 0.0
        """Those that counts are of, before the last halving at half of their weight, and so on."""
        self._look_probes = 0
        self._look_hits = 0
        self._expected_share: float | None = None
        self._has_moved = False

    def note(self, probes: int, hits: int) -> None:
        """So many keys were asked for, and so many of them were there."""
        self._probes += probes
        self._counted_probes += probes
        self._look_probes += probes
        self._look_hits += hits
        if self._look_probes >= max(PROBES_PER_LOOK_MIN, PROBES_PER_LOOK * self.entries):
            self._look()

    def _look(self) -> None:
        share = self._look_hits / self._look_probes
        expected = share if self._expected_share is None else self._expected_share
        deviation = (expected * (1 - expected) / self._look_probes) ** 0.5
        self._has_moved = expected - share > max(FALL_MIN * expected, FALL_DEVIATIONS * deviation)
        self._expected_share = share if self._has_moved else expected + FOLLOW_RATE * (share - expected)
        self._look_probes = self._look_hits = 0

    @property
    def margin_deviations(self) -> int:
        """Standard deviations by which a count must exceed another to be taken for the greater one."""
        return (self._period // PERIOD_MIN).bit_length() - 1

    @property
    def outlook(self) -> float:
        """How many uses are ahead, in as many probes as are between two halvings, for each that was counted."""
        return self._period * self.entries / max(1.0, self._counted_probes)

    def resize(self, entries: int) -> None:
        """The memory has another size, and so will have the share of hits."""
        self.entries = entries
        self._expected_share = None
        self._look_probes = self._look_hits = 0

    def as_numbers(self) -> list[float]:
        """All that it knows, for whoever goes on in another process; the first is not 0."""
        expected = -1.0 if self._expected_share is None else self._expected_share
        seen = (self._probes, self._look_probes, self._look_hits)
        return [float(self._period), *(float(n) for n in seen), expected, float(self._has_moved), self._counted_probes]

    def go_on_from(self, numbers: Sequence[float]) -> None:
        """Know what another knew, in the numbers from the first on; zeros are from nobody."""
        period, probes, look_probes, look_hits, expected, has_moved, counted_probes = numbers[:NUMBERS]
        if period:
            self._period, self._probes = int(period), int(probes)
            self._look_probes, self._look_hits = int(look_probes), int(look_hits)
            self._expected_share = None if expected < 0 else expected
            self._has_moved = bool(has_moved)
            self._counted_probes = counted_probes

    def due(self) -> int:
        """How often counts must be halved before they are used again."""
        if self._has_moved:
            self._has_moved = False
            self._period, self._probes, self._counted_probes = PERIOD_MIN, 0, 0.0
            return ALL
        if self._probes < self._period * self.entries:
            return 0
        self._period, self._probes = min(2 * self._period, PERIOD_MAX), 0
        self._counted_probes /= 2
        return 1

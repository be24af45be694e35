"""What a semi-stream join operator is.

An operator sees numbers, not rows: the driver numbers the stream rows and hands over each row's number and key code.
The operator answers with pairs (stream row, row of a relation batch) whose codes are equal, and says which stream rows
are *finished*, that is, will get no further pair. Everything else exists once, in the driver: the columns of the
stream, the check of hashed keys against the real ones, inner or left, the balance, the output.

So an operator is exactly the three choices of the papers: which rows wait, which rows are remembered, what to read
next. It knows no Spark, no wall clock and no random source; a clock is handed in where one is needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from semistream.budget import MemoryBudget
from semistream.clock import Clock
from semistream.structures.hot_set import HotSet
from semistream.structures.packed_rows import RowSource

Numbers = npt.NDArray[np.int64]

NO_NUMBERS: Numbers = np.zeros(0, np.int64)

# What the driver takes of `output_bytes_max` when it answers in place, for operators that can leave it as much.

ANSWERED_ROW_BYTES = 64
"""For a stream row that is answered in place: what an open row takes, where its partner is and where it goes."""

ANSWER_COPIES = 3
"""An answer exists three times at most: as the one before, as rows copied between steps, and under construction."""


@dataclass(frozen=True, slots=True)
class StreamRows:
    """Stream rows as an operator sees them."""

    numbers: Numbers
    """Running numbers given by the driver, ascending."""
    codes: Numbers
    """Key codes, aligned with the numbers; rows with a null in their key never come here."""

    def __len__(self) -> int:
        return len(self.numbers)

    def first(self, count: int) -> StreamRows:
        """The first `count` rows."""
        return StreamRows(self.numbers[:count], self.codes[:count])

    def first_part(self, rows_max: int) -> StreamRows:
        """The first of as few parts as possible, none longer than `rows_max` and all of about one length."""
        parts = -(-len(self) // rows_max)
        return self.first(-(-len(self) // max(1, parts)))


@dataclass(frozen=True, slots=True)
class Joined:
    """Pairs of a stream row and a relation row with the same code. Valid until the next `admit`."""

    stream_rows: Numbers
    relation: RowSource
    relation_rows: Numbers

    def __len__(self) -> int:
        return len(self.stream_rows)


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What one bounded piece of work produced."""

    joined: tuple[Joined, ...] = ()
    finished: Numbers = field(default_factory=lambda: NO_NUMBERS)
    """Stream rows that will get no more pairs; every admitted row is named exactly once, in some step."""

    def joined_within(self, first: int, end: int) -> list[Joined]:
        """The pairs of stream rows numbered from `first` to before `end`."""
        inside = [(pairs.stream_rows >= first) & (pairs.stream_rows < end) for pairs in self.joined]
        return [
            pairs if bool(mask.all()) else Joined(pairs.stream_rows[mask], pairs.relation, pairs.relation_rows[mask])
            for pairs, mask in zip(self.joined, inside, strict=True)
            if bool(mask.any())
        ]

    def finished_within(self, first: int, end: int) -> Numbers:
        """The finished rows numbered from `first` to before `end`."""
        return self.finished[(self.finished >= first) & (self.finished < end)]


@dataclass(frozen=True, slots=True)
class JoinResources:
    """What an operator may use."""

    budget: MemoryBudget
    clock: Clock
    rows_per_step: int
    """The most stream rows that are worked on at once; less where memory is short."""
    stream_row_bytes: int = 0
    """What the driver keeps of a stream row as long as it waits: v_S of the papers."""
    rows_may_wait: bool = True
    """Whether rows can wait for others to come; not where every batch is answered in place before the next one."""
    hot_set: HotSet | None = None
    """Rows that are remembered together with other processes, outside of the budget; for operators that can use it."""


@dataclass(slots=True)
class JoinStats:
    """What an operator has counted since it was made; behind the semicolon the papers' price for one."""

    rows: int = 0
    """Stream rows admitted; c_S."""
    hits: int = 0
    """Stream rows answered from memory: by remembered rows, or by knowing that the key is absent."""
    reads: int = 0
    """Calls to the relation; c_IO."""
    keys_read: int = 0
    """Distinct keys asked for in those calls."""
    rows_read: int = 0
    """Relation rows that came back."""
    evicted: int = 0
    """Keys that were remembered and are no more."""
    iterations: int = 0
    """Rounds of the algorithm's outer loop, where it has one."""
    stream_probes: int = 0
    """Stream rows looked up among remembered rows; c_H."""
    disk_probes: int = 0
    """Relation rows looked up among waiting rows; c_H."""
    waited: int = 0
    """Stream rows that were made to wait; c_A."""
    left: int = 0
    """Stream rows that have ended waiting; c_E."""
    outputs: int = 0
    """Pairs handed out; c_O."""
    frequency_tests: int = 0
    """Comparisons of a key's frequency with a threshold; c_F."""
    inequality_tests: int = 0
    """Decisions by the cache inequality about a key that was read; c_I."""
    eviction_tests: int = 0
    """Decisions by the cache inequality about a key that is remembered; c_V."""
    lettings: int = 0
    """Pages of which keys were let in among those that are remembered; the papers have no price for it."""

    def copy(self) -> JoinStats:
        """The counters as they are now."""
        return JoinStats(*_counters_of(self))


_counters_of = attrgetter(*JoinStats.__slots__)
"""All at once: a timed run copies them after every step, where `dataclasses.replace` takes five times as long."""


class SemiStreamJoin(ABC):
    """A join of a stream with a relation.

    The driver offers rows as long as the operator wants them, and lets it step when it does not, or when there are
    none.
    """

    output_bytes_max: int
    """Bytes of its budget that the operator leaves free for output under construction."""

    keeps_order = False
    """Whether output shall come in the order of the stream.

    Such an operator hands out pairs and finishes rows in that order, each row before it hands out pairs of a later one,
    and lets none wait for rows that were not admitted.
    """

    def __init__(self) -> None:
        self.stats = JoinStats()

    @property
    @abstractmethod
    def waiting_rows(self) -> int:
        """Stream rows admitted and not yet finished."""

    @property
    def wants_rows(self) -> bool:
        """Whether more stream rows should come before the next step."""
        return self.waiting_rows == 0

    @property
    def waiting_bytes_max(self) -> int:
        """Bytes of its budget that the operator leaves to the driver for the columns of rows that wait."""
        return 0

    @abstractmethod
    def admit(self, rows: StreamRows) -> int:
        """Take the first rows, as many as there is memory for, and return how many were taken.

        At least one is taken when rows are wanted.
        """

    @abstractmethod
    def step(self) -> StepOutput:
        """Do a bounded piece of work. Only called while rows wait, or none are wanted."""

    def end_stream(self) -> None:  # noqa: B027 - most operators do the same with or without an end
        """The rows that came so far are all for now: they will be drained before others come."""

    def rest(self) -> None:  # noqa: B027 - most operators share nothing
        """Nothing waits, and nothing will come for a while: share what was learned, and hold nothing others want."""

    def forget(self) -> None:  # noqa: B027 - most operators remember nothing
        """Drop everything that is remembered. Nothing may be waiting."""

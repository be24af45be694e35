"""What holds for all points of a run: the device, what memory means, the seed, and what the stream is like.

The figures of the papers have one stream: keys by Zipf's law, R in the order of their popularity, a hot set that stays,
rows that come evenly where a rate is given. `StreamKind` changes these, so that a user can see what becomes of a claim
where the stream is more like theirs. It changes what is drawn and nothing else: keys that come from tables are as they
are, and rows that are all there at once have no arrivals to change. `semistream.lab.feasible` says where a change
would change nothing.

With `real` the machine's own disk and processor are used, and no price is known before they are measured. The profile
then only serves tuners, which have to assume something.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar, get_args

from semistream.errors import InvalidOption, check_choice
from semistream.joins.waiting import WaitingRows
from semistream.lab.experiment import JVM_WAITING_ROW_BYTES, Setting
from semistream.lab.workloads.key_stream import Drift, KeyOrder
from semistream.relations.metered import HDD, NVME, IoProfile

Io = Literal["hdd", "nvme", "real"]
PROFILES: dict[str, IoProfile] = {"hdd": HDD, "nvme": NVME, "real": NVME}

MemoryModel = Literal["actual", "jvm"]

Generator = Literal["exact", "integral"]
"""Zipf's law itself, or what the generators of the papers draw under its name (`workloads.zipf.IntegralZipf`)."""

Arrivals = Literal["constant", "bursty", "intermittent", "published"]
"""How rows come where they come at a rate; see `workloads.arrivals`."""

PAPER_STREAM_ROW_BYTES = 20
"""The row for which `JVM_WAITING_ROW_BYTES` was measured."""

_Word = TypeVar("_Word")


@dataclass(frozen=True, slots=True)
class StreamKind:
    """What a stream is like, beside the numbers of a setting; as in the papers' figures unless it says otherwise."""

    generator: Generator = "exact"
    order: KeyOrder = "frequency"
    drift: Drift | None = None
    arrivals: Arrivals = "constant"

    @property
    def changes_keys(self) -> bool:
        """Whether other keys are drawn than in the papers' figures."""
        return replace(self, arrivals="constant") != StreamKind()

    @property
    def changes_arrivals(self) -> bool:
        """Whether rows come otherwise than evenly."""
        return self.arrivals != "constant"

    @property
    def in_words(self) -> str:
        """What is not as in the papers' figures; empty where all is."""
        changed = {
            "keys by the papers' integral": self.generator == "integral",
            "popular keys strewn over R": self.order == "shuffled",
            f"other popular keys every {self.drift.every_rows if self.drift else 0} rows": self.drift is not None,
            f"{self.arrivals} arrivals": self.changes_arrivals,
        }
        return ", ".join(words for words, is_so in changed.items() if is_so)


@dataclass(frozen=True, slots=True)
class Conditions:
    """What holds for all points of a run."""

    io: Io = "hdd"
    memory_model: MemoryModel = "actual"
    seed: int = 1
    stream: StreamKind = field(default_factory=StreamKind)

    @property
    def profile(self) -> IoProfile:
        """The device."""
        return PROFILES[self.io]

    @property
    def is_real(self) -> bool:
        """Whether time is this machine's."""
        return self.io == "real"

    def stream_row_bytes(self, setting: Setting) -> int:
        """What is charged for a waiting row beside its place in our tables."""
        if self.memory_model == "actual":
            return setting.stream_row_bytes
        rows = max(1, setting.memory_bytes // JVM_WAITING_ROW_BYTES)
        charged = JVM_WAITING_ROW_BYTES - PAPER_STREAM_ROW_BYTES + setting.stream_row_bytes
        return max(0, charged - WaitingRows.bytes_for(rows) // rows)


def conditions_of(
    io: str = "hdd",
    memory_model: str = "actual",
    seed: int = 1,
    *,
    generator: str = "exact",
    order: str = "frequency",
    drift_rows: int | None = None,
    arrivals: str = "constant",
) -> Conditions:
    """Conditions from words that a person wrote.

    Example:
        >>> conditions_of("nvme", order="shuffled").stream.in_words
        'popular keys strewn over R'
    """
    if seed < 0:
        raise InvalidOption("`seed` is negative", given=str(seed), allowed="a whole number from 0 on")
    stream = StreamKind(
        _one_of("generator", generator, get_args(Generator)),
        _one_of("order", order, get_args(KeyOrder)),
        None if drift_rows is None else Drift(drift_rows),
        _one_of("arrivals", arrivals, get_args(Arrivals)),
    )
    return Conditions(
        _one_of("io", io, get_args(Io)), _one_of("memory_model", memory_model, get_args(MemoryModel)), seed, stream
    )


def _one_of(option: str, word: str, known: tuple[_Word, ...]) -> _Word:
    """The word, once it is sure that it is one of these."""
    check_choice(option, word, [str(one) for one in known])
    return next(one for one in known if one == word)

"""`semistream tune`: the best split of a memory budget, by the model and by measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from semistream.cli.planned import Io, Json, Memory, RelationPath, Skew

if TYPE_CHECKING:
    from semistream.demo.display import Display
    from semistream.joins.base import Numbers
    from semistream.relations.arrow_file.reader import ArrowFileRelation

ROWS_MAX = 50_000_000
"""The longest stream that is run: some minutes, and a gigabyte for the times of its rows."""


def tune(
    relation: RelationPath,
    algorithm: Annotated[str, typer.Option(metavar="NAME", help="What to tune, such as sscj.", show_default=False)],
    memory: Memory = "64MB",
    skew: Skew = 1.0,
    io: Io = "hdd",
    seed: Annotated[int, typer.Option(metavar="NUMBER", min=0, help="Of the stream's keys.")] = 1,
    json: Json = False,
) -> None:
    """Find the best split of a memory budget, by the cost model and by measurement.

    The model is asked on a fine grid. Measurement runs the join over a stream of the relation's keys, on a coarse grid
    and at the model's optimum; what the device and the operations take is charged to a virtual clock, so the numbers
    are the same on every machine. The last line says what is lost by believing the model.

    \b
    Example:
      semistream tune relations/products --algorithm sscj --memory 4MB
      semistream tune relations/products --algorithm cachejoin --memory 4MB --skew 0.8 --io ssd --json
    """  # noqa: D301 - typer keeps the lines behind this mark as they are
    from semistream.budget import parse_bytes
    from semistream.cli.output import print_json, watching
    from semistream.cli.planned import Stages, check_io, device_shown, opened
    from semistream.clock import RealClock
    from semistream.joins.registry import ALGORITHMS
    from semistream.joins.x_hybridjoin import require_unique
    from semistream.planning.capacities import Room, sampled_rows_per_key, workload_of
    from semistream.planning.tune import Tuner, check_tunable
    from semistream.planning.tune import tune as find_best

    check_io(io)
    check_tunable(algorithm)
    room = Room(parse_bytes(memory))
    _, rows = opened(relation)
    if not ALGORITHMS[algorithm].many_to_many:
        # Before anything is said of memory: no memory would help.
        require_unique(rows.info, algorithm)
    page_rows = max(1, round(rows.info.row_count / max(1, rows.info.page_count)))
    with watching(RealClock()) as display:
        device = device_shown(io, display)
        workload = workload_of(rows, room, zipf_exponent=skew, rows_per_key=sampled_rows_per_key(rows))
        tuner = Tuner(lambda _: rows, workload, room, device.profile, device.unit_costs)
        stream = _Stream(_key_codes(rows, display), skew, seed)
        stages = Stages(display)
        stages.begin("Asking the model")
        tuning = find_best(
            algorithm,
            tuner,
            stream.draw,
            [page_rows],
            on_trial=lambda run, runs: stages.begin(f"Run {run} of {runs}"),
        )
        stages.end()
    if json:
        print_json(tuning.as_json())
    else:
        typer.echo(tuning.as_text())


def _key_codes(relation: ArrowFileRelation, display: Display) -> Numbers:
    """All codes of a relation's keys, each once."""
    import numpy as np

    from semistream.errors import InvalidOption
    from semistream.joins.matching import codes_of

    if relation.info.row_count == 0:
        raise InvalidOption(
            f"relation {relation.info.name!r} is empty, so there is nothing to tune for",
            given="0 rows",
            allowed="1 or more",
        )
    display.begin("Reading the keys")
    found, read = [], 0
    for number in range(relation.segment_count):
        page = relation.segment(number)
        read += len(page)
        # Pages never split a key.
        found.append(np.unique(codes_of(page)))
        display.advance("read", read, relation.info.row_count)
    codes = np.concatenate(found)
    display.end(f"{len(codes):,} keys")
    return codes


class _Stream:
    """A stream with Zipf's law over keys in an order of popularity that has nothing to do with where they lie."""

    def __init__(self, codes: Numbers, exponent: float, seed: int) -> None:
        from semistream.lab.workloads.zipf import Shuffle, Zipf

        self._codes, self._seed = codes, seed
        self._ranks, self._shuffle = Zipf(len(codes), exponent), Shuffle(len(codes), seed)

    def draw(self, rows: int) -> Numbers:
        """The first rows."""
        import numpy as np

        from semistream.errors import InvalidOption

        if rows > ROWS_MAX:
            raise InvalidOption(
                "so much memory, or so much skew, takes too long to measure: a steady rate shows only after all that "
                "waits was exchanged",
                given=f"a stream of {rows:,} rows",
                allowed=f"at most {ROWS_MAX:,}",
                hint="give less --memory or --skew, or ask the model alone with `semistream plan`",
            )
        ranks = self._ranks.sample(np.random.default_rng(self._seed), rows)
        return self._codes[self._shuffle(ranks)]

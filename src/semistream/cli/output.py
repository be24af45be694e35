"""What a person sees, and what a program reads.

Progress goes to the standard error, answers to the standard output, so that `semistream … --json | jq` works while
somebody watches. On a terminal progress is drawn and redrawn; anywhere else it is lines that are never taken back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from semistream.budget import format_bytes, parse_bytes
from semistream.clock import Clock
from semistream.demo.display import Display, StreamView, thousands
from semistream.errors import InvalidOption, SemistreamError

STAGE_CELLS = 34
BAR_CELLS = 36

LINE_EVERY_S = 5.0
"""Seconds between two lines about one unfinished stage, where lines cannot be taken back."""

_FACTORS = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


def parse_rows(text: str) -> int:
    """Return a number of rows written by a person: `200k`, `1.5M`, `1_000_000`.

    Example:
        >>> parse_rows("200k"), parse_rows("1.5M"), parse_rows("1_000_000")
        (200000, 1500000, 1000000)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)", re.sub(r"[\s_,]", "", text).lower())
    # Not as a float, in which 1.001 thousand is not a whole number.
    rows = Decimal(match.group(1)) * _FACTORS[match.group(2)] if match else Decimal(0)
    if rows < 1 or rows != int(rows):
        raise InvalidOption(
            "a number of rows could not be read", given=repr(text), allowed="a whole number, such as 200k, 1M or 5000"
        )
    return int(rows)


def split_names(text: str | None) -> list[str] | None:
    """Return the column names of `a,b`, or None when there is no text."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InvalidOption("a list of columns has an empty name", given=repr(text), allowed="names such as a,b")
    return names


def parse_sizes(text: str) -> list[int]:
    """Return the memory sizes of `4MB,16MB` in bytes."""
    sizes = [size.strip() for size in text.split(",")]
    if not all(sizes):
        raise InvalidOption(
            "a list of memory sizes has an empty one", given=repr(text), allowed="sizes such as 4MB,16MB,64MB"
        )
    return [parse_bytes(size) for size in sizes]


def make_folder(folder: Path) -> None:
    """Make a folder for what is put out, unless it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidOption(
            "the folder for what is put out cannot be made",
            given=f"{str(folder)!r} ({error.strerror})",
            allowed="a folder, or the name of one that can be made",
        ) from None


def print_json(answer: object) -> None:
    """Print one line of JSON on the standard output."""
    # At once: who reads lines from a pipe should not wait for the last one.
    print(json.dumps(answer, ensure_ascii=False), flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table on the standard output, the first column never broken."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1))
    for i, name in enumerate(columns):
        table.add_column(name, no_wrap=i == 0, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)


def print_facts(facts: Mapping[str, str], table: Table | None = None) -> None:
    """Print names and values, one a line, on the standard output, below a table if there is one."""
    console = Console(highlight=False)
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="bold", no_wrap=True)
    lines.add_column(overflow="fold")
    for name, value in facts.items():
        lines.add_row(name, Text(value))
    if table is not None:
        console.print(table)
    console.print(lines)


def print_error(error: SemistreamError) -> None:
    """Print what is wrong in plain words on the standard error."""
    message, _, hint = str(error).partition("\nHint: ")
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(Text.assemble(("error: ", "bold red"), message))
    if hint:
        console.print(Text.assemble(("hint: ", "bold"), hint))


@contextmanager
def watching(clock: Clock) -> Iterator[Display]:
    """Show progress on the standard error, in the way that fits it."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        yield LineDisplay(console, clock)
        return
    display = LiveDisplay(console, clock)
    with Live(display, console=console, refresh_per_second=10, transient=True):
        yield display


class LineDisplay:
    """Progress as lines, for logs and pipes."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._stage = ""
        self._begun_s = self._told_s = 0.0

    def begin(self, stage: str) -> None:
        """Remember the stage; its line comes when it is done."""
        self._stage = stage
        self._begun_s = self._told_s = self._clock.now_s()

    def advance(self, doing: str, done: int, total: int | None, unit: str = "rows") -> None:
        """Write a line now and then, so that a long stage does not look dead."""
        if self._clock.now_s() - self._told_s >= LINE_EVERY_S:
            self._told_s = self._clock.now_s()
            self._print(f"  {doing}: {_progress(done, total, unit)}")

    def stream(self, view: StreamView) -> None:
        """Write a line a batch."""
        self._print(
            f"  batch {view.batches} of {view.batches_total}: {_sales(view)}, {_speed(view)}, "
            f"hit rate {_percent(view.hit_rate)}, {_held(view)} held"
        )

    def end(self, result: str) -> None:
        """Write what came of the stage."""
        self._print(f"{self._stage}: {result} ({self._clock.now_s() - self._begun_s:.1f} s)")

    def _print(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, markup=False)


class LiveDisplay:
    """Progress as a picture: finished stages stand above, the current one moves."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._spinner = Spinner("dots", style="cyan")
        self._stage: str | None = None
        self._begun_s = 0.0
        self._detail: RenderableType | None = None

    def begin(self, stage: str) -> None:
        """Show the stage as the current one."""
        self._begun_s = self._clock.now_s()
        self._detail = None
        self._stage = stage

    def advance(self, doing: str, done: int, total: int | None, unit: str = "rows") -> None:
        """Draw how much of the stage is done."""
        rows = _grid()
        rows.add_row(doing, _bar(done, total), _progress(done, total, unit))
        self._detail = rows

    def stream(self, view: StreamView) -> None:
        """Draw the stream after a batch."""
        rows = _grid()
        rows.add_row("sales", _bar(view.rows, view.rows_total), _sales(view))
        rows.add_row("hit rate", _bar(view.hit_rate or 0.0, 1.0), _percent(view.hit_rate))
        rows.add_row("memory", _bar(view.held_bytes, view.budget_bytes), _held(view))
        rows.add_row("speed", f"{_speed(view)}, batch {view.batches} of {view.batches_total}")
        self._detail = rows

    def end(self, result: str) -> None:
        """Move the stage up among the finished ones."""
        assert self._stage is not None, "a stage ended that never began"
        line = self._line(Text("✓", style="green"), self._stage, result)
        self._stage = None
        self._console.print(line)

    def __rich__(self) -> RenderableType:
        """Draw the current stage; called by a thread of Rich's, several times a second."""
        stage, detail = self._stage, self._detail
        if stage is None:
            return Text("")
        line = self._line(self._spinner, stage, "")
        return line if detail is None else Group(line, detail)

    def _line(self, mark: RenderableType, stage: str, result: str) -> Table:
        line = Table.grid(padding=(0, 1))
        line.add_column(width=1)
        line.add_column(width=STAGE_CELLS, no_wrap=True)
        line.add_column(width=8, justify="right", style="dim")
        line.add_column(style="dim")
        line.add_row(mark, stage, f"{self._clock.now_s() - self._begun_s:.1f} s", result)
        return line


def _grid() -> Table:
    rows = Table.grid(padding=(0, 1))
    rows.add_column(width=11, justify="right", style="dim")
    rows.add_column(width=BAR_CELLS)
    rows.add_column(no_wrap=True)
    return rows


def _bar(done: float, total: float | None) -> ProgressBar:
    return ProgressBar(total=total, completed=done, width=BAR_CELLS)


def _progress(done: int, total: int | None, unit: str) -> str:
    return f"{thousands(done)} {unit}" if total is None else f"{thousands(done)} of {thousands(total)} {unit}"


def _sales(view: StreamView) -> str:
    return f"{thousands(view.rows)} of {thousands(view.rows_total)}"


def _speed(view: StreamView) -> str:
    return f"{thousands(view.rows_per_second)} rows/s"


def _held(view: StreamView) -> str:
    return f"{format_bytes(view.held_bytes)} of {format_bytes(view.budget_bytes)}"


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.1%}"

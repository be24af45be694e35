"""Where the demo puts its files: one directory, which the next run may replace.

A directory that was not made by the demo is never touched: a marker file says whose it is.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from semistream.errors import InvalidOption

MARKER = ".semistream-demo"


@dataclass(frozen=True, slots=True)
class Workspace:
    """The places inside the demo's directory."""

    root: Path

    def source(self, name: str) -> Path:
        """A table of master data as it is delivered."""
        return self.root / "sources" / f"{name}.parquet"

    def relation(self, name: str) -> Path:
        """A table of master data as it is looked up."""
        return self.root / "relations" / name

    def table(self, name: str) -> Path:
        """A table of the star schema."""
        return self.warehouse / name

    @property
    def stream(self) -> Path:
        """The sales, one file a burst."""
        return self.root / "stream"

    @property
    def warehouse(self) -> Path:
        """The star schema."""
        return self.root / "warehouse"

    @property
    def checkpoint(self) -> Path:
        """Spark's record of what it has loaded."""
        return self.root / "checkpoint"

    @property
    def spark_log(self) -> Path:
        """Whatever Spark had to say."""
        return self.root / "spark.log"

    def prepare(self) -> None:
        """Make the directory, empty of what an earlier run left; refuse one that holds anything else."""
        if self.root.exists() and not self.root.is_dir():
            raise InvalidOption("the demo needs a directory", given=f"the file {self.root}")
        if self.root.is_dir() and any(self.root.iterdir()) and not (self.root / MARKER).exists():
            raise InvalidOption(
                "the directory for the demo holds files that are not the demo's",
                given=str(self.root),
                allowed="a new or empty directory, or one of an earlier demo",
                hint="choose another with --out",
            )
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / MARKER).write_text("Made by `semistream demo`; the next run may replace it.\n")
        for name in ("sources", "stream", "relations", "warehouse", "checkpoint"):
            if (self.root / name).exists():
                shutil.rmtree(self.root / name)
        self.spark_log.unlink(missing_ok=True)

"""The project's own files, as the tidy tests read them."""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "semistream"
SOURCE_ROOT = ROOT / "src" / PACKAGE


@dataclass(frozen=True)
class Source:
    """One module of the package: where it stands and what it says."""

    place: str
    """Path below the package, such as `joins/driver.py`."""
    text: str

    @property
    def layer(self) -> str:
        """The folder, or for a module beside the folders its own name; `__init__` is the front door."""
        return self.place.split("/")[0].removesuffix(".py")

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text, self.place)

    def __str__(self) -> str:
        return self.place


@cache
def sources() -> tuple[Source, ...]:
    """Every module of the package."""
    return tuple(
        Source(path.relative_to(SOURCE_ROOT).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE_ROOT.rglob("*.py"))
    )


@cache
def project_files() -> tuple[Path, ...]:
    """Every file that is or would be committed, relative to the root; also where there is no git."""
    ignored = [".git", *_ignored_patterns()]
    found: list[Path] = []
    for folder, subfolders, names in os.walk(ROOT):
        here = Path(folder).relative_to(ROOT)
        subfolders[:] = sorted(name for name in subfolders if not _is_ignored(here / name, ignored))
        found += [here / name for name in sorted(names) if not _is_ignored(here / name, ignored)]
    return tuple(found)


def _ignored_patterns() -> list[str]:
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    return [line.strip("/") for line in lines if line and not line.startswith("#")]


def _is_ignored(path: Path, patterns: list[str]) -> bool:
    return any(fnmatch(path.name, pattern) or fnmatch(path.as_posix(), pattern) for pattern in patterns)

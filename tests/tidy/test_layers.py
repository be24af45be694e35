"""Imports go one way. This test is the rule; CONTRIBUTING only retells it.

Imports inside functions and under `TYPE_CHECKING` count as well: a hidden arrow is still an arrow.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.tidy.sources import PACKAGE, Source, sources

FRONT_DOOR = "__init__"

_BASICS = {"errors", "clock", "budget"}
_CORE = _BASICS | {"structures", "keys", "relations", "joins"}

ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "clock": set(),
    "budget": {"errors"},
    "structures": _BASICS,
    "keys": _BASICS | {"structures"},
    "relations": _BASICS | {"structures", "keys"},
    "joins": _BASICS | {"structures", "keys", "relations"},
    "window": _BASICS | {"structures", "keys"},
    "cost": _BASICS,
    "planning": _CORE | {"window", "cost"},
    "spark": _CORE | {"window", "planning"},
    "lab": _CORE | {"window", "cost", "planning"},
    "warmup": _CORE,
    FRONT_DOOR: _CORE | {"window", "spark"},
    "demo": _CORE | {"spark", "lab", FRONT_DOOR},
    "bench": _CORE | {"window", "cost", "planning", "spark", "lab", "demo", FRONT_DOOR},
    "cli": _CORE | {"window", "cost", "planning", "spark", "lab", "demo", "bench", FRONT_DOOR},
}
"""What each layer may import of the package, besides itself."""

FENCED: dict[str, set[str]] = {
    "pyspark": {"spark", "demo", "bench"},
    "numba": {"structures", "relations"},
    "typer": {"cli"},
    "rich": {"cli"},
    "duckdb": {"bench"},
    "matplotlib": {"lab", "planning", "bench"},
    "hypothesis": set(),
    "pytest": set(),
}
"""Libraries that only these layers may import."""


def imported_names(source: Source) -> Iterator[str]:
    """Full names of all modules that a module imports; `from a import b` counts as `a.b`, which may be a module."""
    package = [PACKAGE, *source.place.split("/")[:-1]]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def misplaced_imports(source: Source) -> list[str]:
    """Imports that go against the direction, or over a fence."""
    return [name for name in imported_names(source) if not _may_import(source.layer, name)]


def _may_import(layer: str, name: str) -> bool:
    top, *rest = name.split(".")
    if top != PACKAGE:
        return layer in FENCED.get(top, {layer})
    target = rest[0] if rest and rest[0] in ALLOWED else FRONT_DOOR
    return target == layer or target in ALLOWED[layer]


@pytest.mark.parametrize("source", sources(), ids=str)
def test_a_module_imports_only_what_its_layer_may(source: Source) -> None:
    assert source.layer in ALLOWED, f"{source} stands in a layer this test does not know; give it a line in ALLOWED"
    assert misplaced_imports(source) == []


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("joins/inlj.py", "import pyspark"),
        ("relations/memory.py", "from semistream.joins.base import Joined"),
        ("relations/memory.py", "from ..joins import base"),
        ("relations/memory.py", "from .. import joins"),
        ("structures/row_queue.py", "from semistream import keys"),
        ("errors.py", "import semistream.budget"),
        ("joins/driver.py", "import semistream as ss"),
        ("joins/driver.py", "from semistream import enrich"),
        ("spark/enrich.py", "def late():\n    from semistream.demo.run import run_demo"),
        ("joins/adaptive.py", "import numba"),
        ("cli/demo.py", "from pyspark.sql import SparkSession"),
        ("relations/arrow_file/reader.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import duckdb"),
    ],
)
def test_the_rule_sees_an_import_against_the_direction(place: str, line: str) -> None:
    assert misplaced_imports(Source(place, line)) != []


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("joins/inlj.py", "from semistream.relations.base import KeyBatch"),
        ("joins/inlj.py", "from .base import Joined"),
        ("joins/inlj.py", "from . import base"),
        ("keys.py", "from semistream.structures.compiled import kernel"),
        ("spark/enrich.py", "import pyspark.sql.functions as F"),
        ("demo/run.py", "import semistream as ss"),
        ("__init__.py", "from semistream.spark.enrich import enrich"),
        ("errors.py", "import difflib"),
    ],
)
def test_the_rule_lets_an_import_along_the_direction_pass(place: str, line: str) -> None:
    assert misplaced_imports(Source(place, line)) == []

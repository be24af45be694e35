"""House rules that a linter does not know. Each rule is a function from a module to its offences.

Every rule is tried on code that breaks it, so that none can go blind without notice.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

import pytest

from tests.tidy.sources import Source, sources

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70

CLOCK_READINGS = {
    "time.time",
    "time.time_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "time.process_time",
    "time.process_time_ns",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
}

SEEDED_RANDOM = {"Random", "Generator", "BitGenerator", "SeedSequence", "PCG64", "Philox", "default_rng"}
"""Names of `random` and `numpy.random` that carry a state of their own."""

WHOLE_COLUMNS = {"iterrows", "itertuples", "to_pylist"}
"""Methods that make a Python object of every row or value."""
ONE_VALUE = "as_py"
"""The method that makes one; a loop around it makes many."""
ROW_LAYERS = {"structures", "relations", "joins", "spark"}
LOOPS_WITH_A_REASON: dict[tuple[str, str], str] = {
    ("joins/reference.py", "reference_join"): "the oracle is slow on purpose",
    ("relations/building/external_sort.py", "_write_run"): "one code a block of many rows",
    ("relations/building/key_watch.py", "described_key"): "one value a key column, for a message",
}
"""(module, function) where values leave Arrow one by one, and why that is not one a row."""

LOOPS = ast.For | ast.While | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

PLAIN_EXCEPTIONS = {"Exception", "ValueError", "TypeError", "KeyError", "IndexError", "LookupError", "RuntimeError"}


def too_long(source: Source) -> Iterator[str]:
    """A file or a function that has outgrown one look."""
    lines = source.text.count("\n")
    if lines > FILE_LINES_MAX:
        yield f"{source} has {lines} lines"
    for function in _functions(source.tree):
        lines = _line_count(function) - _docstring_line_count(function)
        if lines > FUNCTION_LINES_MAX:
            yield f"{source}:{function.lineno} {function.name} has {lines} lines"


def without_docstring(source: Source) -> Iterator[str]:
    """A module that does not say what it is for."""
    if not (ast.get_docstring(source.tree) or "").strip():
        yield f"{source} has no docstring"


def reads_the_clock(source: Source) -> Iterator[str]:
    """Time that was not handed in."""
    if source.place == "clock.py":
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and ".".join(_dotted(node).split(".")[-2:]) in CLOCK_READINGS:
            yield f"{source}:{node.lineno} reads {_dotted(node)}"
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            taken = [alias.name for alias in node.names if f"time.{alias.name}" in CLOCK_READINGS]
            yield from (f"{source}:{node.lineno} imports time.{name}" for name in taken)


def hidden_randomness(source: Source) -> Iterator[str]:
    """Randomness of the whole process, or without a seed, instead of a generator that was handed in."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute):
            owner, _, name = _dotted(node).rpartition(".")
            if owner in {"random", "np.random", "numpy.random"} and name not in SEEDED_RANDOM:
                yield f"{source}:{node.lineno} uses {owner}.{name}"
        elif isinstance(node, ast.ImportFrom) and node.module in {"random", "numpy.random"}:
            taken = [alias.name for alias in node.names if alias.name not in SEEDED_RANDOM]
            yield from (f"{source}:{node.lineno} imports {node.module}.{name}" for name in taken)
        elif isinstance(node, ast.Call) and not node.args and not node.keywords:
            name = _dotted(node.func).split(".")[-1]
            if name in {"default_rng", "Random"}:
                yield f"{source}:{node.lineno} calls {name}() without a seed"


def loops_over_rows(source: Source) -> Iterator[str]:
    """Rows, or values of a column, turned into Python objects where rows are many."""
    for function, line, name in _row_loops(source):
        if (source.place, function) not in LOOPS_WITH_A_REASON:
            yield f"{source}:{line} {function} uses {name}"


def wordless_assertion(source: Source) -> Iterator[str]:
    """An assertion that would fail without saying what it means."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assert) and node.msg is None:
            yield f"{source}:{node.lineno} asserts without words"


def error_outside_the_family(source: Source) -> Iterator[str]:
    """A plain exception where `semistream.errors` has one that says what is wrong, given and allowed."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            kind = _dotted(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)
            if kind in PLAIN_EXCEPTIONS:
                yield f"{source}:{node.lineno} raises {kind}"


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _line_count(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _docstring_line_count(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    # A long explanation is no reason to split a function.
    return _line_count(function.body[0]) if ast.get_docstring(function) is not None else 0


def _row_loops(source: Source) -> Iterator[tuple[str, int, str]]:
    """Function, line and method of everything that takes values out of Arrow one by one."""
    if source.layer not in ROW_LAYERS:
        return
    for node, function, in_loop in _walk(source.tree):
        if isinstance(node, ast.Attribute) and (node.attr in WHOLE_COLUMNS or (node.attr == ONE_VALUE and in_loop)):
            yield function, node.lineno, node.attr


def _walk(node: ast.AST, function: str = "", in_loop: bool = False) -> Iterator[tuple[ast.AST, str, bool]]:
    """All nodes, each with the function it stands in and whether it is inside a loop."""
    for child in ast.iter_child_nodes(node):
        name = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        looped = in_loop or isinstance(child, LOOPS)
        yield child, name, looped
        yield from _walk(child, name, looped)


def _dotted(node: ast.AST) -> str:
    """`a.b.c` for an attribute, `a` for a name; the unknown root of a chain is left out."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}".lstrip(".")
    return node.id if isinstance(node, ast.Name) else ""


Rule = Callable[[Source], Iterator[str]]

RULES: dict[Rule, list[tuple[str, str]]] = {
    too_long: [
        ("joins/long.py", "x = 1\n" * (FILE_LINES_MAX + 1)),
        ("joins/long.py", "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX),
    ],
    without_docstring: [("joins/mute.py", "x = 1\n"), ("joins/mute.py", '""" """\n'), ("joins/__init__.py", "")],
    reads_the_clock: [
        ("joins/driver.py", "import time\nstart = time.perf_counter()"),
        ("spark/enrich.py", "from time import time"),
        ("relations/arrow_file/directory.py", "import datetime\nnow = datetime.datetime.now()"),
        ("lab/arrivals.py", "measure = time.monotonic"),
    ],
    hidden_randomness: [
        ("lab/zipf.py", "import random\nx = random.random()"),
        ("lab/zipf.py", "import numpy as np\nnp.random.seed(1)"),
        ("lab/zipf.py", "from random import shuffle"),
        ("lab/zipf.py", "import numpy as np\nrng = np.random.default_rng()"),
    ],
    loops_over_rows: [
        ("joins/driver.py", "def f(column):\n    return [v.as_py() for v in column]"),
        ("relations/memory.py", "rows = table.to_pylist()"),
        ("spark/enrich.py", "for row in frame.itertuples():\n    pass"),
    ],
    wordless_assertion: [("budget.py", "assert x > 0")],
    error_outside_the_family: [
        ("keys.py", "raise ValueError('bad')"),
        ("keys.py", "raise KeyError"),
    ],
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_all_modules_keep_the_rule(rule: Rule) -> None:
    assert [offence for source in sources() for offence in rule(source)] == []


@pytest.mark.parametrize(
    ("rule", "place", "text"), [(rule, place, text) for rule, examples in RULES.items() for place, text in examples]
)
def test_a_rule_sees_what_breaks_it(rule: Rule, place: str, text: str) -> None:
    assert list(rule(Source(place, text))) != []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_lets_good_code_pass(rule: Rule) -> None:
    good = Source(
        "joins/good.py",
        '"""Good."""\n'
        "import numpy as np\n"
        "from semistream.errors import InvalidOption\n"
        "def draw(clock, seed, column):\n"
        "    assert seed >= 0, 'a seed is never negative'\n"
        "    rng = np.random.default_rng(seed)\n"
        "    if rng.random() > clock.now_s():\n"
        "        raise InvalidOption('too late')\n"
        "    return rng.integers(10) + column[0].as_py()\n",
    )
    assert list(rule(good)) == []


def test_every_exception_from_the_rule_on_rows_is_still_needed() -> None:
    used = {(source.place, function) for source in sources() for function, _, _ in _row_loops(source)}
    assert set(LOOPS_WITH_A_REASON) - used == set()

"""What all tests share: one seed for everything random, and the order in which tests run.

The seed that pytest-randomly prints at the top also seeds Hypothesis, so one number replays a run:
`make test ARGS="--randomly-seed=N"`. A failing Hypothesis test prints in addition the decorator that
replays its one example. `ARGS="--hypothesis-profile=deep"` searches longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck, settings

SPARK_TESTS = Path(__file__).parent / "spark"
COST_TESTS = Path(__file__).parent / "cost"
USUAL_ALGORITHMS = ("adaptive", "inlj")
"""What users run; tests of the others are many and go with the long ones."""
COST_CLASSES = {"slow": 1, "spark": 2, "connect": 3, "long": 4}

# Examples take as long as the machine lets them: no deadline and no complaint about slow generation on two busy cores.
_patient = settings(print_blob=True, derandomize=False, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", _patient, max_examples=60)
settings.register_profile("deep", _patient, max_examples=2_000)
settings.load_profile("ci")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    # Last, because pytest-randomly has drawn its seed by then.
    seed = config.getoption("randomly_seed", default=None)
    if isinstance(seed, int) and config.getoption("--hypothesis-seed") is None:
        hypothesis.core.global_force_seed = seed


def pytest_report_header(config: pytest.Config) -> str:
    seed = config.getoption("randomly_seed", default=None)
    return f'One seed for order and examples; to replay this run: make test ARGS="--randomly-seed={seed}"'


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    # Before the others: `-m "not spark"` chooses by marks.
    for item in items:
        if SPARK_TESTS in item.path.parents:
            item.add_marker(pytest.mark.spark)
        # On Connect the suite of classic Spark runs a second time.
        is_second_time = item.get_closest_marker("connect") is not None
        if is_second_time or COST_TESTS in item.path.parents or _algorithm_of(item) not in USUAL_ALGORITHMS:
            item.add_marker(pytest.mark.long)
    yield
    # After the shuffle, and stable: what fails fast fails first, and a Spark session is started once, at the end.
    items.sort(key=_cost_class)


def _algorithm_of(item: pytest.Item) -> str:
    """The algorithm that a test is about; tests that name none are about what all users run."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    return str(parameters.get("algorithm", USUAL_ALGORITHMS[0]))


def _cost_class(item: pytest.Item) -> int:
    return max((COST_CLASSES[mark.name] for mark in item.iter_markers() if mark.name in COST_CLASSES), default=0)


@pytest.fixture
def fresh_worker() -> Iterator[None]:
    """A test that serves tasks as a worker of Spark's leaves nothing of it to the next."""
    # Here, because most tests need no Spark.
    from tests.support.workers import forget_worker

    yield
    forget_worker()

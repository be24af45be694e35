"""What is known of Spark's workers without asking them: how many there are, and whether their Python is ours."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from semistream.errors import EnvironmentUnfit
from semistream.spark import environment


class Session:
    """Stands for a session whose first query ends as it is told to."""

    def __init__(self, problem: str = "", **options: str) -> None:
        self.conf = {name.replace("_", "."): value for name, value in options.items()}
        self.asked = 0
        self.schema = None
        self._problem = problem

    def range(self, _: int) -> Session:
        return self

    def mapInArrow(self, *_: Any) -> Session:
        return self

    def collect(self) -> None:
        self.asked += 1
        if self._problem:
            raise RuntimeError(self._problem)


def cluster(problem: str, identity: str) -> Session:
    return Session(problem, spark_master="spark://127.0.0.1:7077", spark_app_id=identity)


@pytest.mark.parametrize(
    ("options", "workers"),
    [
        ({"spark_master": "local"}, 1),
        ({"spark_master": "local[3]"}, 3),
        ({"spark_master": "local[3, 4]"}, 3),
        ({"spark_master": "spark://host:7077"}, 0),
        ({"spark_master": "spark://host:7077", "spark_executor_cores": "8"}, 8),
        ({"spark_master": "yarn", "spark_executor_cores": "8", "spark_task_cpus": "3"}, 2),
        ({}, 0),
    ],
)
def test_workers_are_counted_from_the_options(options: dict[str, str], workers: int) -> None:
    assert environment.worker_count(Session(**options)) == workers


@pytest.mark.parametrize(
    "line",
    [
        "ModuleNotFoundError: No module named 'pyarrow'",
        "ImportError: cannot import name 'pin_version' from 'semistream'",
        "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11.",
        'java.io.IOException: Cannot run program "/nope/python": error=2, No such file or directory',
        "org.apache.spark.SparkException: EOFException occurred while reading the port from pyspark.daemon's stdout.",
    ],
)
def test_what_ails_a_worker_is_passed_on_with_what_to_set(line: str) -> None:
    session = cluster(f"An exception was thrown:\n  {line}\n\tat org.apache.spark.X", line)
    with pytest.raises(EnvironmentUnfit) as refused:
        environment.ensure_workers_can_import(session)
    message = str(refused.value)
    assert message.startswith("the Python workers of this Spark session cannot import semistream")
    assert line.rstrip(".") in message
    assert f"set PYSPARK_PYTHON={sys.executable} before the session" in message
    assert "at org.apache.spark" not in message


def test_a_failure_of_another_kind_is_not_blamed_on_python() -> None:
    with pytest.raises(RuntimeError, match="no executor"):
        environment.ensure_workers_can_import(cluster("no executor is there", "busy"))


def test_a_session_is_asked_once() -> None:
    session = cluster("", "asked once")
    for _ in range(3):
        environment.ensure_workers_can_import(session)
    assert session.asked == 1


def test_another_environment_of_the_same_interpreter_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    ours = Session(spark_master="local[2]", spark_app_id="ours")
    environment.ensure_workers_can_import(ours)
    (tmp_path / "python3").symlink_to(Path(sys.executable).resolve())
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "python3"))
    other = Session(spark_master="local[2]", spark_app_id="other")
    environment.ensure_workers_can_import(other)
    assert (ours.asked, other.asked) == (0, 1)

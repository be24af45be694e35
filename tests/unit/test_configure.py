"""What `configure` sets on the builder of a session, and what it leaves alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import semistream as ss
from semistream.errors import InvalidOption
from semistream.spark.configure import DAEMON

MODULE = "spark.python.daemon.module"
PYTHON = "spark.pyspark.python"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_CONF_DIR", "MASTER"):
        monkeypatch.delenv(name, raising=False)
    # Another test's JVM knows nothing of this one's file of defaults.
    monkeypatch.setattr("pyspark.SparkContext._jvm", None)


def configured(**settings: str) -> dict[str, Any]:
    builder = SparkSession.Builder()
    for name, value in settings.items():
        builder = builder.config(name.replace("__", "."), value)
    return dict(ss.configure(builder)._options)


def test_workers_are_forked_from_a_process_that_has_imported_everything() -> None:
    assert configured()[MODULE] == DAEMON


def test_workers_use_the_interpreter_of_the_script() -> None:
    assert configured()[PYTHON] == sys.executable


@pytest.mark.parametrize("name", [MODULE, PYTHON])
def test_a_setting_of_the_builder_stays(name: str) -> None:
    assert configured(**{name.replace(".", "__"): "mine"})[name] == "mine"


def test_an_interpreter_named_in_the_environment_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    assert PYTHON not in configured()


def test_the_interpreter_of_this_machine_is_not_for_others() -> None:
    assert PYTHON not in configured(spark__master="spark://10.0.0.1:7077")


def test_a_setting_in_the_file_of_defaults_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"# mine\n\n{MODULE}   my.daemon\nspark.other=x\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert MODULE not in configured()


def test_settings_of_the_server_are_not_for_a_client_of_connect() -> None:
    assert MODULE not in configured(spark__remote="sc://10.0.0.1")


def test_a_running_session_is_refused() -> None:
    with pytest.raises(InvalidOption, match="not the builder"):
        ss.configure(object())

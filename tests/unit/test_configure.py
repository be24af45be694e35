"""What `configure` sets on the builder of a session, and what it leaves alone."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import semistream as ss
from semistream.errors import InvalidOption
from semistream.spark.configure import (
    ARROW_BATCH_ROWS,
    COLLECTOR,
    DAEMON,
    DRIVER_JAVA,
    EXECUTOR_JAVA,
    SOCKET_FOLDER_BYTES_MAX,
    UNCHECKED_ARROW,
)

MODULE = "spark.python.daemon.module"
ARROW = "spark.sql.execution.arrow.maxRecordsPerBatch"
SOCKETS = "spark.python.unix.domain.socket.enabled"
SOCKET_FOLDER = "spark.python.unix.domain.socket.dir"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "PYSPARK_PYTHON",
        "PYSPARK_GATEWAY_PORT",
        "SPARK_REMOTE",
        "SPARK_CONF_DIR",
        "MASTER",
        "PYSPARK_SUBMIT_ARGS",
    ):
        # First set, so that whatever a test sets is taken back as well.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    # Another test's JVM knows nothing of this one's file of defaults.
    monkeypatch.setattr("pyspark.SparkContext._jvm", None)


def configured(**settings: str) -> dict[str, Any]:
    builder = SparkSession.Builder()
    for name, value in settings.items():
        builder = builder.config(name.replace("__", "."), value)
    return dict(ss.configure(builder)._options)


def test_workers_are_forked_from_a_process_that_has_imported_everything() -> None:
    assert configured()[MODULE] == DAEMON


def test_more_rows_cross_at_a_time_unless_the_user_said_how_many() -> None:
    assert configured()[ARROW] == str(ARROW_BATCH_ROWS)
    assert configured(**{ARROW.replace(".", "__"): "500"})[ARROW] == "500"


def test_workers_here_are_reached_by_unix_sockets_in_a_folder_whose_path_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/var/tmp")
    assert (configured()[SOCKETS], configured()[SOCKET_FOLDER]) == ("true", "/var/tmp")
    deep = tmp_path / ("d" * SOCKET_FOLDER_BYTES_MAX)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert (configured()[SOCKETS], configured()[SOCKET_FOLDER]) == ("true", "/tmp")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert SOCKETS not in configured()


@pytest.mark.parametrize("master", ["spark://10.0.0.1:7077", "yarn"])
def test_nothing_is_assumed_of_folders_on_other_machines(master: str) -> None:
    assert SOCKETS not in configured(spark__master=master)


def test_a_user_who_wants_no_unix_sockets_gets_none() -> None:
    assert configured(**{SOCKETS.replace(".", "__"): "false"})[SOCKETS] == "false"


def java_options(given: str = "") -> list[str]:
    return str(configured(**{DRIVER_JAVA.replace(".", "__"): given})[DRIVER_JAVA]).split()


def test_garbage_is_collected_in_parallel_unless_the_user_named_another_way() -> None:
    assert COLLECTOR in java_options()
    assert java_options("-Dx=1")[:2] == ["-Dx=1", COLLECTOR]
    assert java_options("-XX:+UseZGC -Dx=1") == ["-XX:+UseZGC", "-Dx=1", *UNCHECKED_ARROW]


def test_arrow_looks_at_no_bounds_and_nulls_where_rows_cross_unless_the_user_wants_it() -> None:
    assert java_options()[-2:] == list(UNCHECKED_ARROW)
    wanted = "-Darrow.enable_unsafe_memory_access=false"
    assert java_options(wanted) == [wanted, COLLECTOR, UNCHECKED_ARROW[1]]
    on_a_cluster = configured(spark__master="yarn", **{EXECUTOR_JAVA.replace(".", "__"): "-Dx=1"})
    assert on_a_cluster[EXECUTOR_JAVA].split() == ["-Dx=1", *UNCHECKED_ARROW]
    assert DRIVER_JAVA not in on_a_cluster


def test_workers_use_the_interpreter_of_the_script() -> None:
    configured()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_a_setting_of_the_builder_stays() -> None:
    assert configured(**{MODULE.replace(".", "__"): "mine"})[MODULE] == "mine"


def test_an_interpreter_named_in_the_environment_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    configured()
    assert os.environ["PYSPARK_PYTHON"] == "/usr/bin/python3"


@pytest.mark.parametrize(
    "settings", [{"spark__master": "spark://10.0.0.1:7077"}, {"spark__pyspark__python": "/usr/bin/python3"}]
)
def test_the_interpreter_of_the_script_is_not_for_others(settings: dict[str, str]) -> None:
    configured(**settings)
    assert "PYSPARK_PYTHON" not in os.environ


def test_a_setting_in_the_file_of_defaults_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"# mine\n\n{MODULE}   my.daemon\nspark.other=x\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert MODULE not in configured()


@pytest.mark.parametrize("form", ["--conf {}=my.daemon", "-c {}=my.daemon", "--conf={}=my.daemon"])
def test_a_setting_among_the_arguments_of_spark_submit_stays(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", form.format(MODULE) + " pyspark-shell")
    assert MODULE not in configured()
    assert ARROW in configured()


def test_a_file_of_settings_and_a_master_are_found_among_the_arguments_of_spark_submit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.conf").write_text(f"{MODULE} my.daemon\n")
    arguments = f"--properties-file '{tmp_path / 'own.conf'}' --master spark://10.0.0.1:7077 pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    settings = configured()
    assert MODULE not in settings
    assert DRIVER_JAVA not in settings, "only for a driver whose workers run beside it"


def test_settings_of_the_server_are_not_for_a_client_of_connect() -> None:
    assert MODULE not in configured(spark__remote="sc://10.0.0.1")


def test_a_running_session_is_refused() -> None:
    with pytest.raises(InvalidOption, match="not the builder"):
        ss.configure(object())

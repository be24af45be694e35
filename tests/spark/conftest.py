"""Spark for tests: one classic session and one Spark Connect session, and `session`, which is first one, then the other.

A process of PySpark is either classic or Connect: a variable of the environment decides which of the two every function
of `pyspark.sql.functions` builds columns for. The fixture `session` sets it for each test, so that both live side by
side. A classic session and a Connect server do not fit into one JVM; the server is therefore a process of its own.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

CONNECT_SWITCH = "SPARK_CONNECT_MODE_ENABLED"
SERVER_START_SECONDS_MAX = 90

SETTINGS = {
    # Four attempts a task: with one, as is usual for local masters, the loss of a worker would end a query.
    "spark.master": "local[2,4]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # Not UTC, so that a value that is shifted by the zone of the session does not stay unnoticed.
    "spark.sql.session.timeZone": "America/New_York",
    # A run of tests is over before the thorough compiler of the JVM has paid for itself.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


@pytest.fixture(scope="session")
def classic_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark in a JVM of this process."""
    folder = tmp_path_factory.mktemp("classic")
    builder = SparkSession.builder.appName("semistream tests")
    for name, value in {**SETTINGS, "spark.sql.warehouse.dir": str(folder)}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    os.environ.pop(CONNECT_SWITCH, None)
    session.stop()


@pytest.fixture(scope="session")
def connect_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A client of a Spark Connect server on this machine."""
    folder = tmp_path_factory.mktemp("connect")
    port = _free_port()
    server = _start_server(folder, port)
    try:
        _wait_for(port, server, folder / "log")
        session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
        yield session
        session.stop()
    finally:
        os.environ.pop(CONNECT_SWITCH, None)
        server.terminate()
        server.wait(30)


@pytest.fixture(params=["classic", pytest.param("connect", marks=pytest.mark.connect)])
def session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """Classic Spark, then Spark Connect."""
    spark: SparkSession = request.getfixturevalue(f"{request.param}_session")
    if request.param == "connect":
        monkeypatch.setenv(CONNECT_SWITCH, "1")
    else:
        monkeypatch.delenv(CONNECT_SWITCH, raising=False)
    return spark


@pytest.fixture
def classic(classic_session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """Classic Spark only, for what Spark Connect does not show."""
    monkeypatch.delenv(CONNECT_SWITCH, raising=False)
    return classic_session


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start_server(folder: Path, port: int) -> subprocess.Popen[bytes]:
    settings = {
        **SETTINGS,
        "spark.sql.warehouse.dir": str(folder),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-class"), "org.apache.spark.deploy.SparkSubmit"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    environment.pop(CONNECT_SWITCH, None)
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment)


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + SERVER_START_SECONDS_MAX
    while time.monotonic() < deadline_s and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    pytest.fail(f"the Spark Connect server did not start:\n{log.read_text(errors='replace')[-2000:]}")

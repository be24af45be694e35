"""Spark for tests: a classic session, a Spark Connect session, and `session`, which is first one and then the other.

A process of PySpark is either classic or Connect: a variable of the environment decides for which of the two every
function of `pyspark.sql.functions` builds columns. The fixture `session` sets it for each test, so that both can live
side by side. A classic session and a Connect server do not fit into one JVM; the server is a process of its own.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

import semistream as ss
from semistream.relations.handle import RelationHandle

CONNECT_SWITCH = "SPARK_CONNECT_MODE_ENABLED"
SERVER_START_SECONDS_MAX = 90

SETTINGS = {
    # Four attempts a task: with one, as is usual for local masters, the loss of a worker would end a query.
    "spark.master": "local[2,4]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # Not UTC, so that a value that is shifted by the zone of the session does not stay unnoticed.
    "spark.sql.session.timeZone": "America/New_York",
    # Most queries here have few rows: compiling code for each of them takes a third of the time of all tests. For the
    # same reason the JVM does without the more thorough of its two compilers.
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}

Publish = Callable[..., RelationHandle]


@pytest.fixture(scope="session")
def classic_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark in a JVM that belongs to this process."""
    folder = tmp_path_factory.mktemp("classic")
    builder = SparkSession.builder.appName("semistream tests")
    for name, value in {**SETTINGS, "spark.sql.warehouse.dir": str(folder)}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def connect_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A client of a Spark Connect server on this machine."""
    folder = tmp_path_factory.mktemp("connect")
    port = _free_port()
    server = _start_server(folder, port)
    try:
        _wait_for(port, server, folder / "log")
        spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
        # Thrown by `create`; from here on each test throws it for itself.
        os.environ.pop(CONNECT_SWITCH, None)
        yield spark
        spark.stop()
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture(params=["classic", pytest.param("connect", marks=pytest.mark.connect)])
def session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """Classic Spark, then Spark Connect."""
    spark: SparkSession = request.getfixturevalue(f"{request.param}_session")
    if request.param == "connect":
        monkeypatch.setenv(CONNECT_SWITCH, "1")
    return spark


@pytest.fixture
def publish(tmp_path: Path) -> Publish:
    """A function that puts a table on disk as a version of a relation, and opens it."""

    def build(
        table: Any, key: str | Sequence[str], name: str = "products", columns: Sequence[str] | None = None
    ) -> RelationHandle:
        ss.build_relation(table, key=key, out=tmp_path / name)
        return ss.relation(tmp_path / name, columns=columns)

    return build


@pytest.fixture
def setting(session: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """A function that sets an option of the session for one test."""
    before: dict[str, str | None] = {}

    def set_option(name: str, value: str) -> None:
        before.setdefault(name, session.conf.get(name))
        session.conf.set(name, value)

    yield set_option
    for name, value in before.items():
        session.conf.set(name, str(value))


@pytest.fixture
def products(publish: Publish) -> RelationHandle:
    """Three products with a unique key."""
    return publish(pa.table({"id": [1, 2, 3], "name": ["ant", "bee", "cat"], "price": [1.5, 2.5, 3.5]}), "id")


@pytest.fixture
def offers(publish: Publish) -> RelationHandle:
    """Offers of products: two of the first, one of the second."""
    return publish(pa.table({"id": [1, 1, 2], "shop": ["north", "south", "north"]}), "id", "offers")


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

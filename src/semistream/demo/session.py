"""A Spark of our own for the demo: two cores, no web page, no chatter.

Spark greets its user with warnings that mean nothing to him (native libraries, host names, incubator modules). Some
come from the JVM before any setting is read, so the JVM is started with its output in a file. If it does not start,
the end of that file is what the user needs to see.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from semistream.errors import EnvironmentUnfit
from semistream.spark.configure import DRIVER_JAVA, helpful_settings, with_java_options

JAVA_ALLOWED = (17, 21, 25)
"""What Spark 4.3 runs on."""

JAVA_HINT = (
    "install one, for example with `apt-get install openjdk-17-jre-headless` or `brew install openjdk@17`, "
    "or set JAVA_HOME to one you have"
)

CHECKPOINTS_BY = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""By default Spark goes through Hadoop's newer interface, which starts a process (`readlink`, `chmod`) for each look at
a local file: a third of the time of a micro-batch without rows."""

LOG_LINES_SHOWN = 5
"""Lines of Spark's log in an error: the last ones hold the reason."""

JVM_EXIT_SECONDS_MAX = 10.0
"""The JVM ends when its standard input closes; waiting longer than this would hang a user who wants to leave."""


@contextmanager
def quiet_spark(log_path: Path, *, cores: int, settings: dict[str, str]) -> Iterator[SparkSession]:
    """Start Spark with its output in `log_path`, and end its JVM when the block ends, however it ends.

    To be used in the main thread, where signals are.
    """
    conf = SparkConf(loadDefaults=False)
    for name, value in {**_settings(cores), **settings}.items():
        conf.set(name, value)
    gateway = _start_jvm(conf, log_path)
    try:
        with _plain_interrupts():
            context = SparkContext(conf=conf, gateway=gateway)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                yield SparkSession(context)
            finally:
                context.stop()
    finally:
        gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None  # otherwise the next session would call the dead JVM
        _end(gateway.proc)


def _start_jvm(conf: SparkConf, log_path: Path) -> Any:
    """Start the JVM and return the way to it.

    An interrupt waits until it is there: nobody else knows the process, and on its own it would not end.
    """
    interrupts: list[int] = []
    handler_before = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        with log_path.open("ab") as log:
            gateway: Any = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as error:
        raise EnvironmentUnfit("Spark did not start", given=_last_lines(log_path), hint=JAVA_HINT) from error
    finally:
        signal.signal(signal.SIGINT, handler_before)
    if interrupts:
        _end(gateway.proc)
        raise KeyboardInterrupt
    return gateway


@contextmanager
def _plain_interrupts() -> Iterator[None]:
    """Let Ctrl-C be a `KeyboardInterrupt` and no more.

    Spark's own handler calls the JVM over a connection that is in use at that moment, and the library of that
    connection logs every interrupt with a traceback. Must be entered before Spark installs its handler.
    """
    handler_before = signal.getsignal(signal.SIGINT)
    connection_log = logging.getLogger()
    connection_log.addFilter(_is_no_interrupt)
    try:
        yield
    finally:
        connection_log.removeFilter(_is_no_interrupt)
        signal.signal(signal.SIGINT, handler_before)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return record.exc_info is None or record.exc_info[0] is not KeyboardInterrupt


def _settings(cores: int) -> dict[str, str]:
    helpful = helpful_settings("local")
    return {
        "spark.master": f"local[{cores}]",
        "spark.app.name": "semistream demo",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        # Everything stays on this machine; also spares a lookup of the host's name, which can be slow or fail.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        # The default of 200 is meant for clusters; here each would be a task of a few rows.
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTS_BY,
        "spark.pyspark.python": sys.executable,
        **helpful,
        # Only the quick one of Java's two compilers. The thorough one pays after minutes; in a run of half a minute on
        # two cores it took as much time as Spark itself.
        DRIVER_JAVA: with_java_options("-XX:TieredStopAtLevel=1", helpful[DRIVER_JAVA]),
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(JVM_EXIT_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def check_java() -> None:
    """Raise `EnvironmentUnfit` unless the Java that Spark would use is one that it can use."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    allowed = "Java " + ", ".join(str(version) for version in JAVA_ALLOWED)
    if shutil.which(java) is None:
        raise EnvironmentUnfit(
            "Spark needs Java and there is none", given=f"JAVA_HOME={home}" if home else "no java on the PATH",
            allowed=allowed, hint=JAVA_HINT,
        )  # fmt: skip
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    # Java 8 calls itself "1.8.0", later ones "17.0.15".
    match = re.search(r'version "(?:1\.)?(\d+)', answer)
    if match is None or int(match.group(1)) not in JAVA_ALLOWED:
        given = (answer.splitlines() or ["no answer"])[0]
        raise EnvironmentUnfit("this Java does not fit Spark", given=given, allowed=allowed, hint=JAVA_HINT)


def _last_lines(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
    return " / ".join(line.strip() for line in lines) or "no output"

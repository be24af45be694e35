"""`configure`: what a Spark session should have from its beginning so that enrichments start and run fast.

Nothing of it is needed. A setting that is there already stays, whoever made it: the builder, `spark-submit` or the
variable with its arguments, or the file with Spark's defaults. Spark lets the builder win over the others, so they are
looked up here.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext

from semistream.errors import InvalidOption

DAEMON = "semistream.spark.daemon"

ARROW_BATCH_ROWS = 20_000
"""Rows that cross to Python at a time. Twice Spark's own: a fixed price for each Arrow batch is paid half as often.
With more there was no further gain, and what a worker needs for a step grows and is missing for remembered rows
(docs/internals/speed.md has the runs)."""

DRIVER_JAVA, EXECUTOR_JAVA = "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"

COLLECTOR = "-XX:+UseParallelGC"
"""Rows that cross live for some milliseconds and are many. The collector that Java takes by default keeps pauses short
at the price of work in every write: 100 k rows took 8 and 27 % longer with it in two pairs of runs."""

UNCHECKED_ARROW = ("-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false")
"""Arrow for Java looks at bounds and nulls with every value that crosses, a tenth of the time that crossing takes.
Spark has asked for nulls by then, and numbers of rows and bytes come with each batch. Iceberg reads without both as
well. What is given up: a column whose own offsets are wrong would end the JVM and not the task."""

_NAMED_COLLECTOR = re.compile(r"-XX:\+Use\w*GC\b")

SOCKET_FOLDER_BYTES_MAX = 60
"""The path of a Unix socket has 103 bytes at most on some systems, and Spark's names for them take 43."""


def helpful_settings(master: str) -> dict[str, str]:
    """What helps enrichments on this master."""
    settings = {
        "spark.python.daemon.module": DAEMON,
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_BATCH_ROWS),
    }
    if not _is_local(master):
        return settings | {EXECUTOR_JAVA: " ".join(UNCHECKED_ARROW)}
    return settings | _unix_sockets() | {DRIVER_JAVA: " ".join((COLLECTOR, *UNCHECKED_ARROW))}


def _unix_sockets() -> dict[str, str]:
    """Settings with which the JVM talks to its workers over Unix sockets, if there is a folder for them.

    Over TCP the end of what a task sends waits for an acknowledgement that the kernel holds back for 40 ms, in every
    task. On other machines nothing is known of the folder, and where its path is too long no worker can start.
    """
    folders = (tempfile.gettempdir(), "/tmp")
    fitting = (f for f in folders if len(os.fsencode(f)) <= SOCKET_FOLDER_BYTES_MAX and os.access(f, os.W_OK))
    folder = next(fitting, None)
    if folder is None or not hasattr(socket, "AF_UNIX"):
        return {}
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": folder}


def configure(builder: Any) -> Any:
    """Set what helps enrichments on the builder of a Spark session, and leave alone what is set already.

    Workers do not need some seconds each for their imports, because everything is imported before they are forked;
    they use the interpreter that runs this script, unless another was named; more rows cross to Python at a time,
    and Arrow for Java does not look at the bounds of each value once more. On a local master rows cross by Unix
    sockets, which spares each task some 40 ms, and Java collects garbage in parallel. Options of Java are put behind
    your own, unless those say something of the same. Where the executors run on other machines, semistream must be
    installed in the Python that they use.

    For a session of Spark Connect nothing is set: this belongs to its server.

    Args:
        builder: `SparkSession.builder`, with or without settings of your own.

    Returns:
        The same builder.

    Example:
        spark = ss.configure(SparkSession.builder.appName("sales")).getOrCreate()
    """
    if not callable(getattr(builder, "config", None)):
        raise InvalidOption(
            "this is not the builder of a Spark session",
            given=type(builder).__name__,
            allowed="`SparkSession.builder`",
            hint="a session that runs cannot be configured any more",
        )
    own: Mapping[str, Any] = getattr(builder, "_options", {})
    if "spark.remote" in own or "SPARK_REMOTE" in os.environ:
        return builder
    there = {**_settings_before(), **own}
    master = str(there.get("spark.master", os.environ.get("MASTER", "local")))
    if _is_local(master):
        _name_python(there)
    for name, value in helpful_settings(master).items():
        if name in (DRIVER_JAVA, EXECUTOR_JAVA):
            builder = builder.config(name, with_java_options(str(there.get(name, "")), value))
        elif name not in there:
            builder = builder.config(name, value)
    return builder


def with_java_options(own: str, helpful: str) -> str:
    """The user's options of Java, and behind them those that help and that they say nothing of."""
    return " ".join([*([own] if own else []), *(option for option in helpful.split() if not _is_said(option, own))])


def _is_said(option: str, own: str) -> bool:
    """Whether options of Java name a collector of garbage, where it is one, or the same property."""
    if option == COLLECTOR:
        return _NAMED_COLLECTOR.search(own) is not None
    return option.partition("=")[0] in (word.partition("=")[0] for word in own.split())


def _name_python(there: Mapping[str, Any]) -> None:
    """Let workers on this machine use this script's interpreter, unless another was named.

    They could not start otherwise: what they are forked from is a module of this package. Spark looks for the name in
    the environment when the session begins; its own setting is heard by `spark-submit` only.
    """
    if "spark.pyspark.python" not in there:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _is_local(master: str) -> bool:
    """Whether workers run on this machine."""
    return master.startswith("local")


def _settings_before() -> dict[str, str]:
    """What `spark-submit` or the file of defaults will set."""
    if SparkContext._jvm is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        # The JVM is there, and knows both.
        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    home = Path(os.environ.get("SPARK_HOME", str(Path(pyspark.__file__).parent)))
    defaults = Path(os.environ.get("SPARK_CONF_DIR", str(home / "conf"))) / "spark-defaults.conf"
    return _submitted(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")), defaults)


def _submitted(arguments: Sequence[str], defaults: Path) -> dict[str, str]:
    """The settings that `spark-submit` makes of its arguments, above those of a file."""
    own: dict[str, str] = {}
    words = iter(word for argument in arguments for word in _option_and_value(argument))
    for word in words:
        if word in ("--conf", "-c"):
            name, _, value = next(words, "").partition("=")
            own[name] = value
        elif word == "--master":
            own["spark.master"] = next(words, "")
        elif word == "--properties-file":
            defaults = Path(next(words, ""))
    return {**_defaults_in(defaults), **own}


def _option_and_value(argument: str) -> list[str]:
    """The two parts of `--name=value`, or what there is."""
    return argument.split("=", 1) if argument.startswith("--") else [argument]


def _defaults_in(path: Path) -> dict[str, str]:
    """The settings of a file as Spark reads it: a name, and behind blanks or a sign of equality its value."""
    if not path.is_file():
        return {}
    lines = (line.strip() for line in path.read_text(errors="replace").splitlines())
    pairs = (line.replace("=", " ", 1).split(None, 1) for line in lines if line and not line.startswith("#"))
    return {pair[0]: pair[-1] for pair in pairs if len(pair) > 1}

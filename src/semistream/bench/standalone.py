"""A real Spark cluster on this machine: a master and some workers, each a process of its own, all on loopback.

Spark's standalone mode comes with the `pyspark` package. A worker here has one core and starts one executor when an
application comes; the executor starts the Python workers. So the processes below a worker are what one node of a
cluster would be, and to kill them is to lose that node.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from semistream.bench.processes import cpu_seconds, end_tree, tree_of
from semistream.clock import RealClock
from semistream.errors import EnvironmentUnfit
from semistream.spark.hot_sets import remove_hot_sets_of_the_dead

HOST = "127.0.0.1"
START_S_MAX = 60.0
LOOK_EVERY_S = 0.1

EXECUTOR_MEMORY = "1g"
"""Of each worker, all of it for its only executor."""


@dataclass(frozen=True, slots=True)
class Standalone:
    """A cluster that runs."""

    address: str
    worker_pids: tuple[int, ...]

    @property
    def settings(self) -> dict[str, str]:
        """What an application must set to get one executor on each worker, all of them before it begins."""
        return {
            "spark.master": self.address,
            "spark.executor.cores": "1",
            "spark.executor.memory": EXECUTOR_MEMORY,
            "spark.cores.max": str(len(self.worker_pids)),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
        }

    def cpu_seconds(self) -> float:
        """Processor time of all workers until now, with their executors and everything below."""
        return sum(cpu_seconds(pid) for worker in self.worker_pids for pid in tree_of(worker))

    def lose_a_worker(self) -> None:
        """Kill the last worker with its executor and its Python workers."""
        end_tree(self.worker_pids[-1])


@contextmanager
def standalone(folder: Path, workers: int) -> Iterator[Standalone]:
    """Start a cluster with so many workers, its files and logs in `folder`; it ends with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    address = f"spark://{HOST}:{port}"
    with ExitStack() as started:
        # Whoever would have done so is killed with its worker.
        started.callback(remove_hot_sets_of_the_dead)
        master = ("master.Master", "--host", HOST, "--port", str(port), "--webui-port", "0")
        _await(port, started.enter_context(_running(folder / "master", *master)), folder / "master")
        pids = []
        for number in range(workers):
            own = folder / f"worker-{number}"
            options = ("--host", HOST, "--webui-port", "0", "--cores", "1", "--memory", EXECUTOR_MEMORY)
            worker = ("worker.Worker", *options, "--work-dir", str(own.resolve()), address)
            pids.append(started.enter_context(_running(own, *worker)).pid)
        yield Standalone(address, tuple(pids))


@contextmanager
def _running(folder: Path, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    folder.mkdir(parents=True, exist_ok=True)
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": HOST, "SPARK_NO_DAEMONIZE": "1"}
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                end_tree(process.pid)


def _await(port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait until somebody listens."""
    clock = RealClock()
    begun_s = clock.now_s()
    while clock.now_s() - begun_s < START_S_MAX and process.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(LOOK_EVERY_S)
            if probe.connect_ex((HOST, port)) == 0:
                return
        try:
            process.wait(LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            continue
    lines = (folder / "log").read_text(errors="replace").splitlines()
    raise EnvironmentUnfit(
        "the master of a Spark cluster did not start",
        given=(lines or ["it said nothing"])[-1],
        hint=f"its log is {folder / 'log'}",
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])

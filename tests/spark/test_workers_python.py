"""The Python of Spark's workers: it is the user's own without any setting, or one sentence says what to set.

Each test is a script of its own, as a user would start it: what matters is the environment at the start.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

SCRIPT = """
import sys
import pyarrow as pa
from pyspark.sql import SparkSession
import semistream as ss
from semistream.errors import EnvironmentUnfit

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.log.level", "OFF")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    .getOrCreate()
)
ss.build_relation(pa.table({"id": [1], "name": ["ant"]}), key="id", out=sys.argv[1])
sales = spark.createDataFrame([(1,), (2,)], "id long")
try:
    print("FOUND", sorted(row.name or "-" for row in ss.enrich(sales, ss.relation(sys.argv[1])).collect()))
except EnvironmentUnfit as error:
    print("UNFIT", error)
"""


@pytest.fixture
def other_python(tmp_path: Path) -> Path:
    """An interpreter of the same version with all packages of this environment but one."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "semistream" not in path.name and path.suffix != ".pth":
            (packages / path.name).symlink_to(path)
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    # Without `site`, which would find the packages that stand beside the interpreter.
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{Path(sys.executable).resolve()}" -S "$@"\n'
    )
    python.chmod(0o755)
    return python


def run(tmp_path: Path, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "relation")],
        env={**inherited, **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    return finished.stdout


def test_workers_use_the_script_s_python_whatever_python3_the_path_has(tmp_path: Path, other_python: Path) -> None:
    path = os.pathsep.join((str(other_python.parent), os.environ["PATH"]))
    assert run(tmp_path, PATH=path).strip() == "FOUND ['-', 'ant']"


def test_workers_that_lack_semistream_are_named_with_what_to_set(tmp_path: Path, other_python: Path) -> None:
    said = run(tmp_path, PYSPARK_PYTHON=str(other_python))
    assert "UNFIT the Python workers of this Spark session cannot import semistream" in said
    assert "No module named 'semistream'" in said
    assert f"set PYSPARK_PYTHON={sys.executable} before the session" in said

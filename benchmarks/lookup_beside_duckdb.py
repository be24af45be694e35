"""Rows by key: our Arrow file beside DuckDB's join, the same rows and the same keys.

Bias note. This is our own benchmark of our own store, on a question it was built for: many keys at once, sorted and
distinct, everything in memory, payload of seven columns. DuckDB answers any question and does not know beforehand
that its table is sorted. It gets its best case here: the table in its own format, in memory, the keys as a registered
Arrow table, the result fetched as Arrow. It runs once with one thread, like us, and once with all cores.

Each contender lives in a process of its own. They take turns, so that whatever else the machine does hits all of
them; compare ratios, not seconds, and on a busy machine the processor's seconds rather than the clock's. Every round
uses new keys. The results of all contenders are compared.

    python benchmarks/lookup_beside_duckdb.py --rows 10M --keys 100k
    python benchmarks/lookup_beside_duckdb.py --rows 20k --keys 1k --rounds 2 --json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from semistream.clock import RealClock
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.reader import ArrowFileRelation
from semistream.relations.arrow_file.writer import ArrowFileWriter
from semistream.relations.base import CODE_COLUMN

CONTENDERS = ("semistream", "semistream, read", "duckdb, 1 thread", "duckdb, all cores")
KEY_STEP = 3
"""Keys are multiples of this, so that a guess at a row is not exact by accident of counting."""
ROWS_PER_APPEND = 200_000
BATCH_BYTES_MAX = 64 * 1024 * 1024

Lookup = Callable[[npt.NDArray[np.int64]], pa.Table]


# The rows


def generate(directory: RelationDirectory, row_count: int, seed: int) -> None:
    """Write the rows as a version: 7 columns, about 97 bytes a row with its code."""
    rng = np.random.default_rng(seed)
    with directory.begin_version() as staged, ArrowFileWriter(staged, _batch(rng, 0, 1).schema) as writer:
        for begin in range(0, row_count, ROWS_PER_APPEND):
            writer.append(_batch(rng, begin, min(row_count, begin + ROWS_PER_APPEND)))
        written = writer.close()
        manifest = written.manifest(key=("product_id",), unique=True, null_key_rows=0, code_version=1)
        directory.publish(staged, manifest)


def _batch(rng: np.random.Generator, begin: int, end: int) -> pa.RecordBatch:
    keys = np.arange(begin, end) * KEY_STEP
    count = len(keys)
    return pa.record_batch(
        {
            CODE_COLUMN: keys,
            "product_id": keys,
            "surrogate_key": rng.integers(0, 2**40, count),
            "vendor_id": rng.integers(0, 100_000, count),
            "price": rng.random(count) * 100,
            "listed_on": pa.array(rng.integers(10_000, 20_000, count).astype(np.int32)).cast(pa.date32()),
            "name": _texts(rng, count, 10, 34),
            "category": _texts(rng, count, 8, 36),
        }
    )


def _texts(rng: np.random.Generator, count: int, bytes_min: int, bytes_max: int) -> pa.Array:
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(rng.integers(bytes_min, bytes_max + 1, count), out=offsets[1:])
    letters = rng.integers(ord("a"), ord("z") + 1, offsets[-1]).astype(np.uint8)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(letters)])


# The contenders


def _semistream(directory: RelationDirectory, access: str) -> Lookup:
    columns = [name for name in directory.manifest(1).columns if name != CODE_COLUMN]
    relation = ArrowFileRelation(directory, 1, columns, access=access)  # type: ignore[arg-type]
    relation.verify_all()
    return lambda keys: pa.Table.from_batches(list(relation.rows_for(keys, BATCH_BYTES_MAX)), relation.schema)


def _duckdb(directory: RelationDirectory, threads: int) -> Lookup:
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET threads = {threads}")
    with pa.memory_map(str(directory.data_path(1))) as file:
        rows = pa.ipc.open_file(file).read_all()
        connection.register("rows", rows)
        connection.execute(f"CREATE TABLE r AS SELECT * EXCLUDE ({CODE_COLUMN}) FROM rows")
        connection.unregister("rows")
        del rows

    def lookup(keys: npt.NDArray[np.int64]) -> pa.Table:
        connection.register("keys", pa.table({"k": keys}))
        return connection.sql("SELECT r.* FROM keys JOIN r ON r.product_id = keys.k").to_arrow_table()

    return lookup


def _open_contender(name: str, directory: RelationDirectory) -> Lookup:
    if name.startswith("semistream"):
        return _semistream(directory, "read" if name.endswith("read") else "map")
    return _duckdb(directory, 1 if name.endswith("1 thread") else os.cpu_count() or 1)


def serve(name: str, directory: RelationDirectory, keys_per_call: int) -> None:
    """Answer each seed on standard input with the time of one lookup and a checksum of what it found."""
    lookup = _open_contender(name, directory)
    row_count = directory.manifest(1).row_count
    clock = RealClock()
    print("ready", flush=True)
    for line in sys.stdin:
        rng = np.random.default_rng(int(line))
        keys = np.sort(rng.choice(row_count, keys_per_call, replace=False)) * KEY_STEP
        begin_s, begin_cpu_s = clock.now_s(), time.process_time()
        found = lookup(keys)
        took_s, took_cpu_s = clock.now_s() - begin_s, time.process_time() - begin_cpu_s
        print(json.dumps({"seconds": took_s, "cpu": took_cpu_s, "found": _fingerprint(found)}), flush=True)


def _fingerprint(found: pa.Table) -> list[Any]:
    sums = [pc.sum(found.column(name)).as_py() for name in ("product_id", "surrogate_key", "vendor_id")]
    texts = [pc.sum(pc.binary_length(found.column(name))).as_py() for name in ("name", "category")]
    # Whole cents, so that the order in which they are added does not matter.
    cents = pc.sum(pc.cast(pc.floor(pc.multiply(found.column("price"), 100)), pa.int64())).as_py()
    return [len(found), *sums, *texts, cents]


# The race


def race(path: Path, row_count: int, keys_per_call: int, rounds: int, seed: int) -> dict[str, Any]:
    """Let the contenders take turns; return the seconds of each."""
    directory = RelationDirectory(path)
    generate(directory, row_count, seed)
    processes = [_start(name, path, keys_per_call) for name in CONTENDERS]
    try:
        seconds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
        cpu_seconds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
        # The first round is for warming up.
        for number in range(rounds + 1):
            answers = [_ask(process, seed + number) for process in processes]
            assert all(a["found"] == answers[0]["found"] for a in answers), f"contenders disagree: {answers}"
            for name, answer in zip(CONTENDERS, answers, strict=True):
                if number > 0:
                    seconds[name].append(answer["seconds"])
                    cpu_seconds[name].append(answer["cpu"])
    finally:
        for process in processes:
            process.stdin.close()
            process.wait(timeout=60)
            process.stdout.close()
    rate = _rates(keys_per_call, seconds)
    cpu_rate = _rates(keys_per_call, cpu_seconds)
    return {
        "benchmark": "lookup_beside_duckdb",
        "rows": row_count,
        "keys": keys_per_call,
        "rounds": rounds,
        "seed": seed,
        "row_bytes_mean": directory.manifest(1).row_bytes_mean,
        "keys_per_s": {name: round(value) for name, value in rate.items()},
        "keys_per_cpu_s": {name: round(value) for name, value in cpu_rate.items()},
        "ratio": {name: round(rate["semistream"] / value, 2) for name, value in rate.items()},
        "cpu_ratio": {name: round(cpu_rate["semistream"] / value, 2) for name, value in cpu_rate.items()},
        "found": answers[0]["found"],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": _versions(),
    }


def _rates(keys_per_call: int, seconds: dict[str, list[float]]) -> dict[str, float]:
    return {name: keys_per_call / statistics.median(values) for name, values in seconds.items()}


def _start(name: str, path: Path, keys_per_call: int) -> Any:
    command = [sys.executable, __file__, "--contender", name, "--path", str(path), "--keys", str(keys_per_call)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None, "a contender has no voice"
    assert process.stdout.readline() == "ready\n", f"{name} did not start"
    return process


def _ask(process: Any, seed: int) -> dict[str, Any]:
    process.stdin.write(f"{seed}\n")
    process.stdin.flush()
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


def _versions() -> dict[str, str]:
    import duckdb

    return {"python": platform.python_version(), "pyarrow": pa.__version__, "duckdb": duckdb.__version__}


def _as_text(result: dict[str, Any]) -> Iterator[str]:
    yield f"{result['keys']} keys a call from {result['rows']} rows of {result['row_bytes_mean']:.0f} bytes, warm"
    for name in CONTENDERS:
        rate, cpu_rate = result["keys_per_s"][name] / 1e6, result["keys_per_cpu_s"][name] / 1e6
        ratio, cpu_ratio = result["ratio"][name], result["cpu_ratio"][name]
        yield (
            f"  {name:<18} {rate:6.2f} M keys/s, {cpu_rate:6.2f} M per second of processor; "
            f"semistream is {ratio:.1f} times as fast and takes 1/{cpu_ratio:.1f} of the processor"
        )


def _number(text: str) -> int:
    factors = {"k": 1_000, "m": 1_000_000}
    factor = factors.get(text[-1:].lower(), 1)
    return round(float(text.rstrip("kKmM")) * factor)


def main() -> None:
    """Run the benchmark, or be one of its contenders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=_number, default=10_000_000)
    parser.add_argument("--keys", type=_number, default=100_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of text")
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contender is not None:
        serve(given.contender, RelationDirectory(given.path), given.keys)
        return
    with tempfile.TemporaryDirectory(prefix="semistream-lookup-") as folder:
        result = race(Path(folder) / "relation", given.rows, given.keys, given.rounds, given.seed)
    print(json.dumps(result) if given.json else "\n".join(_as_text(result)))


if __name__ == "__main__":
    main()

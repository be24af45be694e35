"""`make bench`: every benchmark at its default size, one after the other."""

from __future__ import annotations

import subprocess
import sys

BENCHMARKS = ("lookup_beside_duckdb", "enrich_beside_nothing", "enrich_beside_spark")


def main() -> None:
    """Run them all; options are for the single ones."""
    for name in BENCHMARKS:
        print(f"\n{name}: python -m benchmarks.{name} --help", flush=True)
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=True)


if __name__ == "__main__":
    main()

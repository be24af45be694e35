"""Compile every kernel once, so that neither the first query nor the first test waits for a compiler.

`python -m semistream.warmup`; run by `make setup`. Compiled kernels are kept on disk and found again by every process.
"""

from __future__ import annotations

import importlib

MODULES_WITH_KERNELS = (
    "semistream.keys",
    "semistream.joins.registry",
    "semistream.relations.building.build",
    "semistream.relations.handle",
    "semistream.structures.row_queue",
    "semistream.structures.window_join",
    "semistream.structures.window_side",
)


def main() -> None:
    """Import whatever has kernels; importing compiles."""
    for module in MODULES_WITH_KERNELS:
        importlib.import_module(module)


if __name__ == "__main__":
    main()

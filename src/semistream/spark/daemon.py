"""The process that Spark forks its Python workers from, with everything imported that they will need.

Spark's own daemon imports next to nothing, so each worker pays for PyArrow, Numba and the compiled kernels itself: some
seconds of processor time when a query starts, and again whenever workers were closed after an idle minute. Named in
`spark.python.daemon.module` (`semistream.configure` does that), this module pays once, before the first fork. Pages
that nobody writes are then shared by all workers as well.

It ends with its executor, also when that is killed, and then removes the hot sets that the executor leaves behind.

Nothing here may compute: a thread does not survive a fork. NumPy and PyArrow start one each when they are imported, to
compute and to return memory, and both know how to fork; the kernels are loaded from the disk and not run.
"""

from __future__ import annotations

import gc
import os

from pyspark import daemon, worker  # noqa: F401 - workers find it imported

from semistream.spark import window_worker  # noqa: F401 - the same
from semistream.spark import worker as enrich_worker  # noqa: F401 - the same
from semistream.spark.hot_sets import remove_hot_sets_of_executor

if __name__ == "__main__":
    # What is there now will stay: a collection that visits it would write to, and so copy, every page in each worker.
    gc.freeze()
    executor = os.getppid()
    try:
        daemon.manager()
    finally:
        # Workers are forked in there and end without coming back here.
        remove_hot_sets_of_executor(executor)

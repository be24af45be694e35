"""R-MESHJOIN: MESHJOIN with a disk buffer of l segments, so that the buffer may be as large as the disk likes.

Naeem, Dobbie, Weber, Alam: R-MESHJOIN for near-real-time data warehousing (DOLAP 2010). b rows are read at once; then,
for each of the l segments, w stream rows are admitted, w expire, and b / l rows probe. An iteration here is one
segment, so that w has the meaning it has in MESHJOIN; l = 1 is MESHJOIN. The equations are derived, as the printed ones
were not at hand:

    M         = b v_R + w v_S + w l (N_R / b)(ptr + f v_S)
    c_segment = c_IO(b) / l + w (c_E + c_S + c_A) + (b / l)(c_H + sigma c_O),     mu = w / c_segment

The gain is that a large b saves calls (`IoProfile.call_s`) without making w, and with it the queue's cells, depend on
it; where a sequential read costs nothing but its bytes there is no gain. The model is exact, like MESHJOIN's.

| symbol    | name here    | unit           | meaning                                        |
|-----------|--------------|----------------|------------------------------------------------|
| b         | `page_rows`  | rows           | disk buffer, all segments of it                |
| l         | `segments`   | -              | logical segments of the disk buffer            |
| l N_R / b | `cells(...)` | iterations     | cells of the queue                             |
| w         | `w_s`        | rows/iteration | stream rows admitted, and expired, per segment |
"""

from __future__ import annotations

import math

from semistream.cost.base import MemoryBytes, Prediction, Sizes, Workload, predicted, waiting_memory
from semistream.cost.symbols import Counts, UnitCosts


def cells(workload: Workload, sizes: Sizes) -> int:
    """Iterations, one a segment, in which all of R passes by."""
    return sizes.segments * math.ceil(workload.r_rows / sizes.page_rows)


def memory_bytes(workload: Workload, sizes: Sizes) -> MemoryBytes:
    """Disk buffer, stream buffer of w rows, hash table and queue."""
    w = sizes.h_s_rows / cells(workload, sizes)
    return {"stream buffer": w * workload.v_s_bytes, **waiting_memory(workload, sizes, sizes.h_s_rows)}


def predict(workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """One segment: its part of a read, one batch in, one batch out."""
    iterations = cells(workload, sizes)
    w = sizes.h_s_rows / iterations
    rows_read = workload.r_rows / iterations
    counts = Counts(
        pages_read=1.0 / sizes.segments,
        bytes_read=rows_read * workload.v_r_bytes,
        seeks=1.0 / iterations,
        probes=rows_read,
        outputs=w * workload.rows_per_key,
        deletions=w,
        stream_reads=w,
        appends=w,
    )
    memory = memory_bytes(workload, sizes)
    return predicted(0.0, w, counts, memory, unit_costs, waiting_rows=sizes.h_s_rows, remembered_rows=0.0)

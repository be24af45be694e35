"""Cost models: pure arithmetic, one file a paper, no operator in sight.

Every model answers the same two questions (`semistream.cost.base.CostModel`): how many bytes does this split of memory
need, and what happens in one turn of the loop. It answers from sizes and a Zipf exponent alone; what an operation costs
on this machine is measured by `semistream.cost.calibrate` and multiplied in at the end.
"""

"""Speed, hits and steadiness, measured beside what a user would pick instead: `semistream bench`.

Bias note. These are our own benchmarks of our own join, on the question it was made for. So the others get their best
case as far as we know it: hints where Spark has them, settings that fit the machine, memory in plenty. All of them run
in one run, one after the other, each in processes of its own; compare ratios, and only within one run.
"""

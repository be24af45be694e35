"""Semi-stream joins: rows that wait, rows that are remembered, and a rule for what to read next.

One algorithm, one file, the name its paper gave it. `base` says what an operator is, `driver` runs any of them,
`registry` finds them by name, `reference` is the slow and obvious join that all others are measured against.
"""

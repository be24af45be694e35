"""Seeded data for demos, tests and experiments: skewed keys, bursty arrivals, a retail shop."""

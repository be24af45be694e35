"""The laboratory: made-up but realistic data, and the experiments that run on it."""

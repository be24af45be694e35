"""Semi-stream joins as parts of a Spark query; the only layer, beside the demo, that knows Spark."""

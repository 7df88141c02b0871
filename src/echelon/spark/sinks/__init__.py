"""Exactly-once sinks for Spark's micro-batches: results, positions and epochs become visible together."""

"""Spark applications as members: the source, the seat, the sinks, and pipelines made of them."""

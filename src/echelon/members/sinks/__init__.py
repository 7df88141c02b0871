"""Sinks in which results and positions become visible together: exactly once, end to end."""

"""The protocol of a group, pure: no I/O, no clock, no randomness."""

"""A pipeline on this machine, from the first message to the audit, with a crash in between."""

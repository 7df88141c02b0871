"""A simulator that tries to break the protocol.

It runs many instances with the real `decide` and the real fold over a log in memory, in virtual time, from a
seed, with faults of processes, network and broker and with administration, and checks invariants as it goes.
The same seed gives the same schedule. `python -m echelon.testing.simulate --help` runs it.
"""

from echelon.testing.simulate.checks import Violation
from echelon.testing.simulate.schedule import Outcome, Schedule

__all__ = ["Outcome", "Schedule", "Violation"]

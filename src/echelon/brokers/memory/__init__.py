"""A broker in the memory of this process, for unit tests: `memory://<name>`.

All connections to one name share one `MemoryServer`. Nothing survives the process.
"""

from echelon.brokers.memory.broker import MemoryBroker
from echelon.brokers.memory.server import MemoryServer

__all__ = ["MemoryBroker", "MemoryServer"]

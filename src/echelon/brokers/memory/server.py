"""What the connections to one `memory://` name share: logs, data streams, committed positions."""

import time
from collections.abc import Mapping
from threading import Lock
from typing import ClassVar, Final

from msgspec import Struct

from echelon.brokers.memory.tape import Tape
from echelon.errors import StreamNotFound, TooLarge, Unreachable
from echelon.model import Entry

MAX_BYTES: Final = 1 << 20


class Record(Struct, frozen=True, gc=False):
    """A message as it was published, before any group gives it a partition."""

    subject: str
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    data: bytes
    time: int


class MemoryServer:
    """The server behind `memory://<name>`; `named` finds or makes it.

    `stop` and `start` imitate an outage: what is stored stays, requests raise Unreachable, followers wait.
    """

    _servers: ClassVar[dict[str, "MemoryServer"]] = {}
    _lock: ClassVar = Lock()

    def __init__(self) -> None:
        self.logs: dict[str, Tape[Entry]] = {}
        self.streams: dict[str, Tape[Record]] = {}
        self.committed: dict[tuple[str, str], Mapping[int, int]] = {}
        self.is_up = True

    @classmethod
    def named(cls, name: str) -> "MemoryServer":
        """The server of this name; a new and empty one if the process has none yet."""
        with cls._lock:
            return cls._servers.setdefault(name, cls())

    def create_stream(self, name: str) -> None:
        """Make an empty data stream, in place of one that had the name.

        It takes the subject `name` and all subjects that begin with `name` and a dot.
        """
        self.delete_stream(name)
        self.streams[name] = Tape()

    def delete_stream(self, name: str) -> None:
        """Delete a data stream, if it is there."""
        if old := self.streams.pop(name, None):
            old.delete()

    def stop(self) -> None:
        """Answer nothing from now on."""
        self.is_up = False

    def start(self) -> None:
        """End a `stop`."""
        self.is_up = True
        self.wake()

    def wake(self) -> None:
        """Make all that wait look again."""
        for log in self.logs.values():
            log.wake()
        for stream in self.streams.values():
            stream.wake()


class Connection:
    """A connection to a server: open until its broker is left."""

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self._is_open = True

    def check(self) -> None:
        """Raise Unreachable if no request can be answered."""
        self.check_open()
        if not self.server.is_up:
            raise Unreachable("the memory server is stopped", remedy="Start it with MemoryServer.start")

    def check_open(self) -> None:
        """Raise Unreachable if the connection was closed."""
        if not self._is_open:
            raise Unreachable("the connection to the memory server is closed")

    def stream(self, name: str) -> Tape[Record]:
        """A data stream's content. Raises StreamNotFound, Unreachable."""
        self.check()
        if name not in self.server.streams:
            raise StreamNotFound(f"there is no stream {name}", remedy="Make it with MemoryServer.create_stream")
        return self.server.streams[name]

    def close(self) -> None:
        """Close the connection; what waits through it is told."""
        self._is_open = False
        self.server.wake()


def now() -> int:
    """The broker's time."""
    return time.time_ns() // 1_000_000


def check_size(data: bytes) -> None:
    """Raise TooLarge if `data` is more than one message may hold."""
    if len(data) > MAX_BYTES:
        raise TooLarge(f"the message has {len(data)} bytes; at most {MAX_BYTES} are taken")

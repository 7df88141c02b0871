"""A connection to a broker in memory, and its writer."""

from collections.abc import Mapping
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from msgspec.structs import replace

from echelon.brokers.memory.log import MemoryLog
from echelon.brokers.memory.reader import MemoryReader
from echelon.brokers.memory.server import Connection, MemoryServer, Record, check_size, now
from echelon.brokers.memory.tape import Tape
from echelon.errors import GroupNotFound, InvalidConfig, NotPartitionable
from echelon.group.config import MAX_PARTITIONS, Stream, check_group_name
from echelon.keys import SubjectKey, check_key
from echelon.model import Entry


class MemoryWriter:
    """Publishes into the stream that the subject's first token names. Every copy is stored; `id` is a header."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def write(
        self,
        subject: str,
        data: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        id: str = "",
    ) -> int:
        """Publish one message and return its sequence. Raises StreamNotFound, TooLarge, Unreachable."""
        tape = self._connection.stream(subject.partition(".")[0])
        check_size(data)
        pairs = {**(headers or {}), **({"echelon-id": id} if id else {})}
        encoded = tuple((name, value.encode()) for name, value in pairs.items())
        return tape.append(Record(subject, key, encoded, data, now()))


class MemoryBroker:
    """A connection to `memory://<name>`, as `echelon.brokers.base.Broker` describes it.

    `server` is where tests make streams and imitate outages.
    """

    def __init__(self, url: str, **options: object) -> None:
        if options:
            raise InvalidConfig(f"'{next(iter(options))}' is no option of a broker in memory", remedy="It has none")
        self.server = MemoryServer.named(urlsplit(url).netloc)
        self._connection = Connection(self.server)

    async def __aenter__(self) -> Self:
        self._connection.check()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    async def groups(self) -> list[str]:
        """The names of the groups, sorted."""
        self._connection.check()
        return sorted(self.server.logs)

    async def create_log(self, group: str, streams: tuple[Stream, ...] = ()) -> MemoryLog:
        """Make the log of a group, if it is not there."""
        self._connection.check()
        check_group_name(group)
        return MemoryLog(self._connection, group, self.server.logs.setdefault(group, Tape[Entry]()))

    async def log(self, group: str) -> MemoryLog:
        """The log of an existing group. Raises GroupNotFound."""
        return MemoryLog(self._connection, group, self._tape(group))

    async def delete_log(self, group: str) -> None:
        """Delete a group's log and committed positions. Raises GroupNotFound."""
        self._tape(group).delete()
        del self.server.logs[group]
        for name, stream in list(self.server.committed):
            if name == group:
                del self.server.committed[name, stream]

    async def prepare(self, group: str, stream: Stream) -> Stream:
        """Check that `stream` is there and is partitioned by its readers; returns it with its identity."""
        tape = self._connection.stream(stream.name)
        if stream.partitioning != "computed":
            raise NotPartitionable(
                f"a stream in memory cannot be partitioned as '{stream.partitioning}'",
                remedy="Use 'computed'",
            )
        check_key(stream.key)
        if not 1 <= stream.partitions <= MAX_PARTITIONS:
            raise InvalidConfig(
                f"stream {stream.name} has {stream.partitions} partitions; it must be 1 to {MAX_PARTITIONS}"
            )
        return replace(stream, identity=tape.identity)

    async def reader(self, group: str, stream: Stream, *, alone: bool = True) -> MemoryReader:
        """A reader of the stream's data; `alone` if the group is over this one stream. Raises StreamNotFound."""
        identity = stream.identity or self._connection.stream(stream.name).identity
        return MemoryReader(self._connection, replace(stream, identity=identity), alone=alone)

    async def writer(self) -> MemoryWriter:
        """A writer for the subjects of all streams."""
        return MemoryWriter(self._connection)

    async def prepare_outlets(self, group: str) -> None:
        """Make the stream `echelon`, which takes the dead letters and advisories of all groups."""
        self._connection.check()
        if "echelon" not in self.server.streams:
            self.server.create_stream("echelon")

    def dead_letters(self, group: str) -> str:
        """The subject of a group's dead letters."""
        return f"echelon.dead.{group}"

    def dead_stream(self, group: str) -> Stream:
        """The group's subject in the stream `echelon`."""
        return Stream("echelon", 1, SubjectKey(self.dead_letters(group)))

    def advisories(self, group: str, kind: str) -> str:
        """The subject of a group's advisories of this kind."""
        return f"echelon.advisory.{group}.{kind}"

    async def commit(self, group: str, stream: Stream, positions: Mapping[int, int]) -> None:
        """Keep the positions under the group's name."""
        self._connection.check()
        old = self.server.committed.get((group, stream.name), {})
        self.server.committed[group, stream.name] = {**old, **positions}

    async def committed(self, group: str, stream: Stream) -> Mapping[int, int]:
        """The positions kept under a name. Raises GroupNotFound if there are none."""
        self._connection.check()
        if (group, stream.name) not in self.server.committed:
            raise GroupNotFound(f"no positions of {stream.name} are kept under the name {group}")
        return self.server.committed[group, stream.name]

    def _tape(self, group: str) -> Tape[Entry]:
        self._connection.check()
        if group not in self.server.logs:
            raise GroupNotFound(f"there is no group {group}")
        return self.server.logs[group]

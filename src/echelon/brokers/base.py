"""What a broker must do for a group: keep its log, give its data, and answer for both.

Three brokers fulfil these protocols: `memory`, `nats` and `kafka`. `echelon.testing.contract` is the suite
that each of them passes. All methods are coroutines of one asyncio loop; none blocks it. Errors are those
of `echelon.errors`, with the broker's own words in them and never with credentials.
"""

from collections.abc import AsyncGenerator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from msgspec import Struct

from echelon.group.config import Stream
from echelon.model import Bounds, Entry, Message

if TYPE_CHECKING:
    import pyarrow as pa


class StreamInfo(Struct, frozen=True):
    """A data stream as the broker has it: who it is, and what each of its partitions holds.

    `identity` changes when the stream is deleted and made anew. `bounds` is by partition number.
    """

    identity: str
    bounds: Mapping[int, Bounds]


class Log(Protocol):
    """A group's totally ordered log. Sequences grow, but need not be consecutive."""

    async def append(self, data: bytes, *, admin: bool = False) -> int:
        """Store one record and return its sequence once the broker has it for good.

        Appends of one Log object are stored in the order of the calls. After `Unreachable` the record may
        or may not be stored. Raises Unreachable, Denied, TooLarge, StorageFull, GroupNotFound.
        """
        ...

    async def bounds(self) -> Bounds:
        """The oldest sequence in the log, and one past the newest. Raises GroupNotFound, Unreachable."""
        ...

    async def read(self, start: int, end: int) -> list[Entry]:
        """All entries with `start <= sequence < end` that the log holds now, in order.

        The last of them is the leader's word: what a replica still has of a lost tail is not among them. Raises
        GroupNotFound, Unreachable, Denied.
        """
        ...

    def follow(self, start: int) -> AsyncGenerator[list[Entry], None]:
        """Entries from `start` on, as they come, in order and without gap or repetition; never ends by itself.

        Survives reconnects, restarts and leader changes of the broker: it waits, and goes on after the last
        entry it gave. Whether the log under it is still the same is the caller's to check (by reading the
        entries that were applied again). Raises Denied and GroupNotFound.
        """
        ...

    async def trim(self, before: int) -> None:
        """Delete the entries with a sequence below `before`."""
        ...


class Reader(Protocol):
    """The data of one stream, by partition number. Reading changes nothing on the broker."""

    async def info(self) -> StreamInfo:
        """Identity and bounds now. Raises StreamNotFound, Unreachable."""
        ...

    async def lag(self, partition: int, position: int) -> int:
        """How many messages the partition holds from `position` on (an upper bound on compacted topics)."""
        ...

    def read(self, partition: int, start: int, end: int) -> AsyncGenerator[list[Message], None]:
        """The messages with `start <= sequence < end`, in order, in lists of bounded size; then it ends.

        A range gives the same messages each time. Gaps in the sequences (compaction, transaction markers,
        other partitions' messages) are no loss. Raises OutOfRange if messages from `start` on have been
        deleted, or `end` lies beyond the partition's end.
        """
        ...

    def read_arrow(self, partition: int, start: int, end: int) -> "AsyncGenerator[pa.RecordBatch, None]":
        """The same range as Arrow record batches of `echelon.brokers.arrow.SCHEMA`."""
        ...

    def tail(self, partition: int, start: int) -> AsyncGenerator[list[Message], None]:
        """Messages from `start` on, as they come, in order; never ends by itself.

        Survives reconnects and restarts. At most a bounded number of messages is held that the caller has
        not taken. Raises OutOfRange as `read` does, also when the stream is truncated or made anew meanwhile.
        """
        ...

    async def position_at(self, partition: int, time: int) -> int:
        """The sequence of the first message whose broker time is not before `time`; the end if there is none."""
        ...


class Writer(Protocol):
    """Publishes messages: results, dead letters, advisories."""

    async def write(
        self,
        subject: str,
        data: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        id: str = "",
    ) -> int:
        """Publish one message and return its sequence once the broker has it for good.

        A non-empty `id` lets the broker or the reader recognise a second copy. Raises as `Log.append` does.
        """
        ...


class Broker(Protocol):
    """A connection to a broker. An async context manager: leaving it closes everything opened from it."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def groups(self) -> list[str]:
        """The names of the groups on this broker, sorted."""
        ...

    async def create_log(self, group: str, streams: tuple[Stream, ...] = ()) -> Log:
        """Make the log of a group, if it is not there, fit for `streams` (as replicated as the data)."""
        ...

    async def log(self, group: str) -> Log:
        """The log of an existing group. Raises GroupNotFound."""
        ...

    async def delete_log(self, group: str) -> None:
        """Delete a group's log and what was derived for it. Raises GroupNotFound."""
        ...

    async def prepare(self, group: str, stream: Stream) -> Stream:
        """Check that `stream` can be partitioned as it says, and make what that needs (a derived stream).

        Returns the stream with what only the broker knows filled in (its identity, the number of a topic's
        partitions). Raises StreamNotFound, NotPartitionable (with the way out), InvalidConfig.
        """
        ...

    async def reader(self, group: str, stream: Stream, *, alone: bool = True) -> Reader:
        """A reader of the stream's data as the group `group` partitions it; `alone` if it is over this one stream."""
        ...

    async def writer(self) -> Writer:
        """A writer for any subject or topic."""
        ...

    async def prepare_outlets(self, group: str) -> None:
        """Make what takes a group's dead letters and advisories, if it is not there."""
        ...

    def dead_letters(self, group: str) -> str:
        """The subject or topic of a group's dead letters."""
        ...

    def dead_stream(self, group: str) -> Stream:
        """The stream that holds a group's dead letters, of one partition, for `reader`."""
        ...

    def advisories(self, group: str, kind: str) -> str:
        """The subject or topic of a group's advisories of this kind."""
        ...

    async def commit(self, group: str, stream: Stream, positions: Mapping[int, int]) -> None:
        """Tell the broker's own tools how far the group is. Does nothing where the broker has no such place."""
        ...

    async def committed(self, group: str, stream: Stream) -> Mapping[int, int]:
        """Positions that the broker itself keeps under a name.

        Kafka's committed offsets, or the ack floor of the JetStream durable consumer of that name. Raises
        GroupNotFound if there are none.
        """
        ...

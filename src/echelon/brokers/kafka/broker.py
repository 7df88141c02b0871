"""A connection to a Kafka cluster, and its writer."""

from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from msgspec.structs import replace

from echelon.brokers.kafka.connection import Connection
from echelon.brokers.kafka.diagnosis import why_not_stored
from echelon.brokers.kafka.log import PREFIX, KafkaLog, log_config
from echelon.brokers.kafka.reader import KafkaReader
from echelon.brokers.kafka.settings import Settings
from echelon.errors import GroupNotFound, LogBroken, NotPartitionable, StreamNotFound, Unreachable
from echelon.group.config import MAX_PARTITIONS, Stream, check_group_name
from echelon.keys import RecordKey

_MOST_REPLICAS: Final = 3


class KafkaWriter:
    """Publishes to topics, as `echelon.brokers.base.Writer` describes it. An `id` travels as header `echelon-id`."""

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
        """Publish one message to the topic `subject`, into the partition of its key, and return its offset there."""
        pairs = [(name, value.encode()) for name, value in (headers or {}).items()]
        if id:
            pairs.append(("echelon-id", id.encode()))
        try:
            return await self._connection.data_sender.send(subject, data, key=key, headers=pairs)
        except Unreachable as error:
            raise await why_not_stored(self._connection, subject, error) from error


class KafkaBroker:
    """A connection to `kafka://[user:password@]host:port[,host:port]`, as `echelon.brokers.base.Broker` describes it.

    Options: `sasl_mechanism` (SCRAM-SHA-512 unless told), `user`, `password`; `tls`, `ca`, `cert`, `key`,
    `key_password`; `timeout` of a request in seconds; `kafka.<property>` for any property of librdkafka. Each
    of them but the last can come from the environment: `ECHELON_KAFKA_CA`. Raises InvalidConfig.
    """

    def __init__(self, url: str, **options: object) -> None:
        self._settings = Settings(url, options)
        self._opened: Connection | None = None

    async def __aenter__(self) -> Self:
        """Raises Unreachable and Denied."""
        self._opened = Connection(self._settings)
        try:
            await self._opened.admin.brokers()
        except BaseException:
            await self._opened.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connection.close()

    async def groups(self) -> list[str]:
        """The names of the groups whose logs may be seen, sorted."""
        topics = await self._connection.admin.topics()
        return sorted(topic.removeprefix(PREFIX) for topic in topics if topic.startswith(PREFIX))

    async def create_log(self, group: str, streams: tuple[Stream, ...] = ()) -> KafkaLog:
        """Make the log of a group, if it is not there, as replicated as the most replicated of the topics."""
        check_group_name(group)
        admin = self._connection.admin
        topics = [await admin.topic(stream.name) for stream in streams]
        replicas = max((topic.replicas for topic in topics), default=0) or min(_MOST_REPLICAS, await admin.brokers())
        await admin.create_topic(PREFIX + group, replicas, log_config(replicas))
        return await self.log(group)

    async def log(self, group: str) -> KafkaLog:
        """The log of an existing group. Raises GroupNotFound, and LogBroken if the topic cannot be a log."""
        try:
            topic = await self._connection.admin.topic(PREFIX + group)
        except StreamNotFound as error:
            raise GroupNotFound(f"there is no group {group}") from error
        if topic.partitions != 1:
            raise LogBroken(f"the log of group {group}, the topic {PREFIX}{group}, has {topic.partitions} partitions")
        return KafkaLog(self._connection, group, topic.identity)

    async def delete_log(self, group: str) -> None:
        """Delete a group's log, dead letters, advisories and committed offsets. Raises GroupNotFound."""
        try:
            await self._connection.admin.delete_topic(PREFIX + group)
        except StreamNotFound as error:
            raise GroupNotFound(f"there is no group {group}") from error
        for topic in (self.dead_letters(group), self.advisories(group, "")):
            with suppress(StreamNotFound):
                await self._connection.admin.delete_topic(topic)
        await self._connection.admin.forget(group)

    async def prepare(self, group: str, stream: Stream) -> Stream:
        """Check that the topic is there; returns the stream with the topic's identity and partitions."""
        topic = await self._connection.admin.topic(stream.name)
        if stream.partitioning != "native" or not isinstance(stream.key, RecordKey):
            raise NotPartitionable(
                f"the topic {stream.name} cannot be partitioned anew: a group takes a topic's partitions as they are",
                remedy="Use the partitioning 'native' and the record's key, or write to a topic keyed as you need",
            )
        if topic.partitions > MAX_PARTITIONS:
            raise NotPartitionable(
                f"the topic {stream.name} has {topic.partitions} partitions; a group can have {MAX_PARTITIONS}"
            )
        return replace(stream, partitions=topic.partitions, identity=topic.identity)

    async def reader(self, group: str, stream: Stream, *, alone: bool = True) -> KafkaReader:
        """A reader of the topic's data; `alone` if the group is over this one topic. Raises StreamNotFound."""
        if not stream.identity:
            stream = replace(stream, identity=(await self._connection.admin.topic(stream.name)).identity)
        return KafkaReader(self._connection, group, stream, alone=alone)

    async def writer(self) -> KafkaWriter:
        """A writer for any topic."""
        return KafkaWriter(self._connection)

    async def prepare_outlets(self, group: str) -> None:
        """Make the topics for the group's dead letters and advisories; the latter are kept for a week."""
        admin = self._connection.admin
        replicas = min(_MOST_REPLICAS, await admin.brokers())
        await admin.create_topic(self.dead_letters(group), replicas, {"retention.ms": "-1"})
        await admin.create_topic(self.advisories(group, ""), replicas, {"retention.ms": str(7 * 86_400_000)})

    def dead_letters(self, group: str) -> str:
        """The topic of a group's dead letters."""
        return f"echelon.dead.{group}"

    def dead_stream(self, group: str) -> Stream:
        """The topic of a group's dead letters, as a stream."""
        return Stream(self.dead_letters(group), 1, RecordKey(), "native")

    def advisories(self, group: str, kind: str) -> str:
        """The topic of a group's advisories, of every kind."""
        return f"echelon.advisory.{group}"

    async def commit(self, group: str, stream: Stream, positions: Mapping[int, int]) -> None:
        """Commit the positions to Kafka under the group's name. Fails while a consumer of that name is live."""
        await self._connection.committed.commit(group, stream.name, positions)

    async def committed(self, group: str, stream: Stream) -> Mapping[int, int]:
        """The offsets that a consumer group has committed on the topic. Raises GroupNotFound if there are none."""
        partitions = (await self._connection.admin.topic(stream.name)).partitions
        positions = await self._connection.committed.find(group, stream.name, partitions)
        if not positions:
            raise GroupNotFound(f"no positions of {stream.name} are committed under the name {group}")
        return positions

    @property
    def _connection(self) -> Connection:
        if self._opened is None:
            raise Unreachable(f"the connection to Kafka at {self._settings.servers} is not open yet")
        return self._opened

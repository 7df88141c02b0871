"""A NATS system as a broker, and its writer."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from msgspec.structs import replace

from echelon.brokers.nats import log, partitioning
from echelon.brokers.nats.api import JetStream, stored
from echelon.brokers.nats.connection import Connection
from echelon.brokers.nats.log import NatsLog
from echelon.brokers.nats.reader import NatsReader
from echelon.brokers.nats.settings import Settings
from echelon.errors import GroupNotFound, NotPartitionable, StreamNotFound, Unreachable
from echelon.group.config import Stream, check_group_name
from echelon.keys import SubjectKey

_OUTLETS: Final[tuple[dict[str, Any], ...]] = (
    {"name": "ECHELON_DEAD", "subjects": ["echelon.dead.*"], "description": "What handlers gave up on"},
    {
        "name": "ECHELON_ADVISORY",
        "subjects": ["echelon.advisory.*.*"],
        "description": "What happened to Echelon's groups in the last week",
        "max_age": 7 * 86_400 * 10**9,
    },
)


class NatsWriter:
    """Publishes to any subject that a stream takes. JetStream drops a second copy with the same `id`.

    A message has no key besides its subject and headers: `key` is not used.
    """

    def __init__(self, js: JetStream) -> None:
        self._js = js

    async def write(
        self,
        subject: str,
        data: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        id: str = "",
    ) -> int:
        """Publish one message and return its sequence. Raises StreamNotFound if no stream takes the subject."""
        given = {**(headers or {}), **({"Nats-Msg-Id": id} if id else {})}
        reply = await self._js.connection.answer(await self._js.connection.ask(subject, data, headers=given))
        sequence = stored(reply, subject)
        if sequence is not None:
            return sequence
        if await self._js.streams(subject=subject):
            raise Unreachable(f"the stream that takes {subject} does not answer")
        raise StreamNotFound(f"no stream takes the subject {subject}", remedy="Make one, or correct the subject")


class NatsBroker:
    """A connection to `nats://…` or `tls://…`, as `echelon.brokers.base.Broker` describes it.

    Options: `user`, `password`, `token`; the files `creds`, `nkey`, `tls_ca`, `tls_cert`, `tls_key`; `domain` or
    `api_prefix` of JetStream; `inbox_prefix`; `timeout` in seconds. The log, the data and what is written go over
    connections of their own, so that none waits for another; they are made when they are first needed.
    """

    def __init__(self, url: str, **options: object) -> None:
        self._settings = Settings(url, options)
        self._connections: dict[str, asyncio.Task[JetStream]] = {}
        self._is_closed = False

    async def __aenter__(self) -> Self:
        try:
            await (await self._over("log")).check_enabled()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def groups(self) -> list[str]:
        """The names of the groups in the account, sorted."""
        return await log.groups(await self._over("log"))

    async def create_log(self, group: str, streams: tuple[Stream, ...] = ()) -> NatsLog:
        """Make the log of a group, if it is not there, with as many replicas as the most replicated stream has."""
        check_group_name(group)
        js = await self._over("log")
        replicas = [(await js.details(stream.name)).config.get("num_replicas", 1) for stream in streams]
        await log.ensure_stream(js, max(replicas, default=1))
        await log.create(js, group)
        return NatsLog(js, group)

    async def log(self, group: str) -> NatsLog:
        """The log of an existing group. Raises GroupNotFound."""
        check_group_name(group)
        found = NatsLog(await self._over("log"), group)
        await found.check_there()
        return found

    async def delete_log(self, group: str) -> None:
        """Delete a group's log, its dead letters and the streams that were derived for it. Raises GroupNotFound."""
        check_group_name(group)
        js = await self._over("log")
        await log.delete(js, group)
        for name in await partitioning.derived_streams(js, group):
            await js.delete_stream(name)
        with suppress(StreamNotFound):
            await js.purge("ECHELON_DEAD", self.dead_letters(group))

    async def prepare(self, group: str, stream: Stream) -> Stream:
        """Check that the stream can be partitioned as it says, make the derived stream, fill in the identity."""
        check_group_name(group)
        source = await partitioning.prepare(await self._over("log"), group, stream)
        return replace(stream, identity=source.created)

    async def reader(self, group: str, stream: Stream, *, alone: bool = True) -> NatsReader:
        """A reader of the stream's data; `alone` if the group is over this one stream. Raises StreamNotFound."""
        js = await self._over("data")
        layout = await partitioning.layout(js, group, stream)
        identity = stream.identity or (await js.details(layout.source)).created
        return NatsReader(js, replace(stream, identity=identity), layout, alone=alone)

    async def writer(self) -> NatsWriter:
        """A writer for the subjects of all streams."""
        return NatsWriter(await self._over("writing"))

    async def prepare_outlets(self, group: str) -> None:
        """Make the streams that take the dead letters and the advisories of all groups."""
        js = await self._over("log")
        for config in _OUTLETS:
            await js.create_stream({"storage": "file", "allow_direct": True, **config})

    def dead_letters(self, group: str) -> str:
        """The subject of a group's dead letters."""
        return f"echelon.dead.{group}"

    def dead_stream(self, group: str) -> Stream:
        """The group's subject in the stream that holds the dead letters of all groups."""
        return Stream("ECHELON_DEAD", 1, SubjectKey(self.dead_letters(group)))

    def advisories(self, group: str, kind: str) -> str:
        """The subject of a group's advisories of this kind."""
        return f"echelon.advisory.{group}.{kind}"

    async def commit(self, group: str, stream: Stream, positions: Mapping[int, int]) -> None:
        """Does nothing: JetStream keeps positions only for its own consumers."""

    async def committed(self, group: str, stream: Stream) -> Mapping[int, int]:
        """The ack floor of the stream's durable consumer of that name, for every partition."""
        consumer = await (await self._over("log")).consumer(stream.name, group)
        if consumer is None:
            raise GroupNotFound(f"the stream {stream.name} has no consumer {group}")
        if stream.partitioning == "derived":
            raise NotPartitionable(
                f"the consumer {group} counts in sequences of {stream.name}, the group in those of a derived stream",
                remedy="Use 'computed' or 'token', or begin at a time instead",
            )
        return dict.fromkeys(range(stream.partitions), consumer.ack_floor.stream_seq + 1)

    async def _close(self) -> None:
        self._is_closed = True
        for js in await asyncio.gather(*self._connections.values(), return_exceptions=True):
            if isinstance(js, JetStream):
                await js.connection.close()

    async def _over(self, purpose: str) -> JetStream:
        """JetStream over the connection for a purpose, which is made if there is none yet."""
        if self._is_closed:
            raise Unreachable(f"the connection to {self._settings.place} is closed")
        if purpose not in self._connections or self._failed(self._connections[purpose]):
            self._connections[purpose] = asyncio.create_task(self._connect(purpose))
        return await asyncio.shield(self._connections[purpose])

    async def _connect(self, purpose: str) -> JetStream:
        # A long search through the data keeps the server from answering pings.
        connection = Connection(self._settings, purpose, ping_seconds=60 if purpose == "data" else 10)
        await connection.open()
        return JetStream(connection)

    @staticmethod
    def _failed(connecting: "asyncio.Task[JetStream]") -> bool:
        return connecting.done() and (connecting.cancelled() or connecting.exception() is not None)

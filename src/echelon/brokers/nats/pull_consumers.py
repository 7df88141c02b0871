"""Consumers of a stream: made, changed, looked at, unpinned. For pulling from one, see `pull.py`."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, TypeVar

from msgspec import Struct, field

from echelon.brokers.nats.api import JetStream, Refused
from echelon.brokers.nats.connection import Connection
from echelon.brokers.nats.pull_config import ConsumerConfig, check_group, check_priority, check_priority_change
from echelon.brokers.nats.settings import Settings
from echelon.errors import BrokerError, ConsumerExists, ConsumerNotFound, FilterTaken, InvalidConfig, InvalidPriority

T = TypeVar("T")

_NOT_FOUND: Final = frozenset({10014, 10149})
_EXISTS: Final = frozenset({10013, 10105, 10148})
_TAKEN: Final = frozenset({10099, 10100})
_PRIORITY: Final = frozenset({10159, 10160, 10161, 10162, 10178, 10196, 10197})
_INVALID: Final = frozenset({10084, 10093, 10098, 10101, 10136, 10137, 10138, 10139})


class Place(Struct):
    """A place in a consumer's deliveries: the consumer's own count, and the stream's sequence."""

    consumer_seq: int = 0
    stream_seq: int = 0


class PriorityGroupState(Struct):
    """A consumer's priority group, and the client that is pinned now, if one is. The time is as JSON has it."""

    group: str
    pinned_client_id: str = ""
    pinned_ts: str = ""


class ConsumerInfo(Struct):
    """A consumer as the server has it. `config` is as JSON has it; `num_waiting` counts requests that wait."""

    name: str
    created: str
    config: dict[str, Any]
    delivered: Place = field(default_factory=Place)
    ack_floor: Place = field(default_factory=Place)
    num_ack_pending: int = 0
    num_redelivered: int = 0
    num_waiting: int = 0
    num_pending: int = 0
    priority_groups: list[PriorityGroupState] | None = None

    @property
    def pinned(self) -> str:
        """The id of the client that is pinned; empty if none is."""
        return self.priority_groups[0].pinned_client_id if self.priority_groups else ""


class _Listed(Struct):
    total: int = 0
    consumers: list[ConsumerInfo] | None = None


class _Done(Struct):
    """An answer that holds no more than that it went well."""


@asynccontextmanager
async def connect(url: str, **options: object) -> "AsyncGenerator[Consumers, None]":
    """Consumers over a connection of their own; URL and options as `NatsBroker` takes them.

    Raises Unreachable, Denied, InvalidConfig, BrokerError without JetStream.
    """
    connection = Connection(Settings(url, options), "consumers")
    await connection.open()
    try:
        consumers = Consumers(connection)
        await consumers.check_enabled()
        yield consumers
    finally:
        await connection.close()


class Consumers(JetStream):
    """JetStream's API with its consumers. All raise StreamNotFound, Unreachable, Denied besides what is named."""

    async def create(self, stream: str, config: ConsumerConfig) -> ConsumerInfo:
        """Make a consumer, or find an equal one.

        Raises ConsumerExists if there is another one of that name, FilterTaken if the stream is a work queue and
        one of the filters has a consumer, InvalidPriority, InvalidConfig.
        """
        check_priority(config)
        return await self._put(stream, config, "create")

    async def update(self, stream: str, config: ConsumerConfig) -> ConsumerInfo:
        """Change a consumer. Raises ConsumerNotFound, InvalidPriority if that would change more than its timeout."""
        check_priority_change((await self.info(stream, config.name)).config, config)
        return await self._put(stream, config, "update")

    async def info(self, stream: str, name: str) -> ConsumerInfo:
        """A consumer as it is now. Raises ConsumerNotFound."""
        return await self._about(stream, name, f"CONSUMER.INFO.{stream}.{name}", None, ConsumerInfo)

    async def consumers(self, stream: str) -> list[ConsumerInfo]:
        """All consumers of a stream."""
        found: list[ConsumerInfo] = []
        while True:
            page = await self._call(f"CONSUMER.LIST.{stream}", {"offset": len(found)}, _Listed, stream=stream)
            found += page.consumers or []
            if not page.consumers or len(found) >= page.total:
                return found

    async def delete(self, stream: str, name: str) -> None:
        """Delete a consumer. Raises ConsumerNotFound."""
        await self._about(stream, name, f"CONSUMER.DELETE.{stream}.{name}", None, _Done)

    async def unpin(self, stream: str, name: str, group: str) -> None:
        """Take the pin from the client that has it; the next message goes to another that waits.

        Raises ConsumerNotFound, InvalidPriority if the consumer has no such priority group.
        """
        check_group(group)
        await self._about(stream, name, f"CONSUMER.UNPIN.{stream}.{name}", {"group": group}, _Done)

    async def reset(self, stream: str, name: str, sequence: int) -> None:
        """Let a consumer go on at a sequence. Raises ConsumerNotFound, Unreachable from servers before 2.14."""
        await self._about(stream, name, f"CONSUMER.RESET.{stream}.{name}", {"seq": sequence}, _Done)

    async def _put(self, stream: str, config: ConsumerConfig, action: Literal["create", "update"]) -> ConsumerInfo:
        body = {"stream_name": stream, "config": config.encode(), "action": action}
        return await self._about(stream, config.name, f"CONSUMER.CREATE.{stream}.{config.name}", body, ConsumerInfo)

    async def _about(self, stream: str, name: str, what: str, body: Mapping[str, object] | None, answer: type[T]) -> T:
        try:
            return await self._call(what, body, answer, stream=stream)
        except Refused as error:
            raise _explain(error, stream, name) from None


def _explain(error: Refused, stream: str, name: str) -> BrokerError | InvalidConfig:
    who = f"the consumer {name} of the stream {stream}"
    words = error.what.rpartition(": ")[2]
    if error.number in _NOT_FOUND:
        return ConsumerNotFound(f"there is no {who.removeprefix('the ')}")
    if error.number in _EXISTS:
        return ConsumerExists(f"{who} is there, and is configured otherwise", remedy="Delete it, or update it")
    if error.number in _TAKEN:
        return FilterTaken(f"{who} cannot be made, for another consumer has one of its filters: {words}")
    if error.number in _PRIORITY:
        return InvalidPriority(f"{who}: {words}")
    if error.number in _INVALID:
        return InvalidConfig(f"{who} cannot be configured like that: {words}")
    return error

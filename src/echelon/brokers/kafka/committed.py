"""The offsets that are committed under a group's name, where Kafka's own tools look for positions.

A consumer asks and commits: librdkafka's administrative requests for this can abort the whole process when the
broker goes away meanwhile.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from echelon.brokers.kafka.faults import fault
from echelon.brokers.kafka.settings import Settings
from echelon.errors import BrokerError, EchelonError, Unreachable

T = TypeVar("T")

_POLL: Final = 0.05
# What Kafka says when offsets are committed from outside for a group that is in use.
_LIVE: Final = frozenset({"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH", "NON_EMPTY_GROUP"})


class CommittedOffsets:
    """The committed offsets of groups, each through a consumer that is kept. Every request may raise Unreachable."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._committers: dict[str, _Committer] = {}
        self._turn = asyncio.Lock()
        self._is_closed = False

    async def commit(self, group: str, topic: str, positions: Mapping[int, int]) -> None:
        """Set the committed offsets of a consumer group that has no live members. Raises BrokerError if it has."""
        places = [TopicPartition(topic, number, position) for number, position in positions.items()]
        doing = f"commit the positions of {topic} under the name {group}"
        await self._ask(group, doing, lambda committer: committer.commit(places, self._settings.timeout))

    async def find(self, group: str, topic: str, partitions: int) -> dict[int, int]:
        """The committed offsets of a consumer group on a topic; empty if there are none."""
        places = [TopicPartition(topic, number) for number in range(partitions)]
        doing = f"find the positions of the consumer group {group}"
        found = await self._ask(group, doing, lambda committer: committer.find(places, self._settings.timeout))
        return {place.partition: place.offset for place in found if place.offset >= 0}

    async def close(self) -> None:
        """End the consumers."""
        async with self._turn:
            self._is_closed = True
            while self._committers:
                await asyncio.to_thread(self._committers.popitem()[1].close)

    async def _ask(self, group: str, doing: str, ask: "Callable[[_Committer], T]") -> T:
        async with self._turn:
            if self._is_closed:
                raise Unreachable(f"could not {doing}: the connection is closed")
            if group not in self._committers:
                try:
                    self._committers[group] = _Committer(self._settings.consumer(group))
                except KafkaException as error:  # As of a certificate that is just not there.
                    raise _explain(error.args[0], doing) from error
            asking = asyncio.ensure_future(asyncio.to_thread(ask, self._committers[group]))
            try:
                return await asyncio.shield(asking)
            except (KafkaException, asyncio.CancelledError) as error:
                await self._drop(group, asking)
                if isinstance(error, asyncio.CancelledError):
                    raise
                raise _explain(error.args[0], doing) from error

    async def _drop(self, group: str, asking: "asyncio.Future[T]") -> None:
        """What was asked may still be under way at the broker: the next one must not take that answer for its own."""
        await asyncio.wait({asking})
        await asyncio.to_thread(self._committers.pop(group).close)


def _explain(cause: KafkaError, doing: str) -> EchelonError:
    if cause.name() in _LIVE:
        return BrokerError(
            f"could not {doing}: a Kafka consumer group of that name has live members",
            remedy="Stop them, or give the group another name",
        )
    return fault(cause, doing)


class _Committer:
    """A consumer that takes no messages. All methods block, and raise KafkaException."""

    def __init__(self, properties: dict[str, str]) -> None:
        self._heard: list[KafkaError | None] = []
        self._consumer = Consumer({**properties, "on_commit": self._hear})
        self.close = self._consumer.close

    def commit(self, places: list[TopicPartition], seconds: float) -> None:
        """Commit offsets. Asynchronously: a synchronous commit waits for ever for a broker that is away."""
        self._consumer.commit(offsets=places, asynchronous=True)
        deadline = time.monotonic() + seconds
        while not self._heard:
            self._consumer.poll(_POLL)
            if time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - so the client names its own
        error = self._heard.pop()
        if error is not None:
            raise KafkaException(error)

    def find(self, places: list[TopicPartition], seconds: float) -> list[TopicPartition]:
        """The committed offsets of partitions."""
        found = self._consumer.committed(places, seconds)
        for place in found:
            if place.error:
                raise KafkaException(place.error)
        return found

    def _hear(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        self._heard.append(error or next((place.error for place in places if place.error), None))

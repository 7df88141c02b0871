"""Questions to a Kafka cluster and changes to it, as coroutines.

librdkafka answers from a thread of its own; nothing here blocks the loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the client does not mark what it exports
    AdminClient,
    ClusterMetadata,
    NewTopic,
    OffsetSpec,
)
from msgspec import Struct

from echelon.brokers.kafka.faults import fault, is_denial
from echelon.brokers.kafka.settings import Settings
from echelon.errors import InvalidConfig, StreamNotFound, Unreachable
from echelon.model import Bounds

T = TypeVar("T")

# How often a request that is not answered yet is looked at for denied credentials, in seconds.
_LOOK: Final = 0.1
_AGAIN: Final = 0.05
# How long a broker of a cluster may not know a topic that the others know, in seconds.
_SPREAD: Final = 1.0
# To ask for one topic, though there is none of this name, so that not all are told.
_NO_TOPIC: Final = "__echelon"
_WRONG_LEADER: Final = frozenset(
    {
        "_NOENT",
        "NOT_LEADER_FOR_PARTITION",
        "LEADER_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "OFFSET_NOT_AVAILABLE",
    }
)
_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the client's typing is not complete
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the same


class Topic(Struct, frozen=True):
    """A topic as the cluster has it.

    `replicas` are those of its most replicated partition. `leaderless` are the partitions that no broker
    leads, though at least one of their replicas is on a broker that runs.
    """

    identity: str
    partitions: int
    replicas: int
    leaderless: frozenset[int]


class Admin:
    """The administrative client of one connection. Every request may raise Unreachable and Denied."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._timeout = settings.timeout
        self._servers = settings.servers
        self._isolation = (
            IsolationLevel.READ_UNCOMMITTED if settings.reads_uncommitted else IsolationLevel.READ_COMMITTED
        )
        self._is_cluster = False
        self._errors: list[KafkaError] = []
        properties: dict[str, Any] = {**settings.properties, "error_cb": self._errors.append}
        # With `none`, an administrative client with a request under way spins while the broker is away.
        properties["metadata.recovery.strategy"] = "rebootstrap"
        try:
            self._client = AdminClient(properties)
        except KafkaException as error:
            raise InvalidConfig(f"Kafka cannot be reached with these settings: {error.args[0].str()}") from error

    async def brokers(self) -> int:
        """How many brokers the cluster has."""
        return len((await self._metadata(_NO_TOPIC, f"reach Kafka at {self._servers}")).brokers)

    async def topics(self) -> list[str]:
        """The names of all topics that may be seen."""
        return list((await self._metadata(None, "list the topics")).topics)

    async def topic(self, name: str) -> Topic:
        """Who a topic is, and its size. Raises StreamNotFound."""
        return await self._despite_spread(partial(self._describe, name))

    async def _describe(self, name: str) -> Topic:
        answers = self._client.describe_topics(TopicCollection([name]), request_timeout=self._timeout)
        found = await self._result(answers[name], f"find the topic {name}")
        replicas = {partition.id: partition.replicas for partition in found.partitions}
        led = {partition.id for partition in found.partitions if partition.leader is not None}
        # A broker that does not run has no address.
        leaderless = {number for number, nodes in replicas.items() if number not in led and any(n.host for n in nodes)}
        return Topic(str(found.topic_id), len(replicas), max(map(len, replicas.values())), frozenset(leaderless))

    async def bounds(self, topic: str, partitions: Iterable[int]) -> dict[int, Bounds]:
        """What each partition holds, up to the last stable offset. Raises StreamNotFound."""
        numbers = list(partitions)
        firsts, ends = await asyncio.gather(
            self._offsets(topic, numbers, _EARLIEST), self._offsets(topic, numbers, _LATEST)
        )
        return {number: Bounds(firsts[number], ends[number]) for number in numbers}

    async def offset_at(self, topic: str, partition: int, time: int) -> int | None:
        """The first offset whose record is not before `time`; None if there is none. Raises StreamNotFound."""
        offset = (await self._offsets(topic, [partition], OffsetSpec.for_timestamp(time)))[partition]
        return offset if offset >= 0 else None

    async def create_topic(self, name: str, replicas: int, config: Mapping[str, str]) -> None:
        """Make a topic of one partition, if it is not there; it can be written to when this returns."""
        answers = self._client.create_topics([NewTopic(name, 1, replicas, config=dict(config))], **self._limits())
        await self._result(answers[name], f"create the topic {name}", unless=("TOPIC_ALREADY_EXISTS",))
        await self._settle(name, is_there=True)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic; it is gone when this returns. Raises StreamNotFound."""
        answers = self._client.delete_topics([name], **self._limits())
        await self._result(answers[name], f"delete the topic {name}")
        await self._settle(name, is_there=False)

    async def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records below an offset that the partition holds. Raises StreamNotFound."""
        place = TopicPartition(topic, partition, before)
        answers = self._client.delete_records([place], **self._limits())
        await self._result(answers[place], f"delete records of {topic}")

    async def forget(self, group: str) -> None:
        """Delete the committed offsets of a consumer group, unless it has none or has live members."""
        answers = self._client.delete_consumer_groups([group], request_timeout=self._timeout)
        unless = ("GROUP_ID_NOT_FOUND", "NON_EMPTY_GROUP", "GROUP_AUTHORIZATION_FAILED")
        await self._result(answers[group], f"delete the consumer group {group}", unless=unless)

    async def _offsets(self, topic: str, partitions: list[int], which: OffsetSpec) -> dict[int, int]:
        return await self._despite_spread(partial(self._list_offsets, topic, partitions, which))

    async def _list_offsets(self, topic: str, partitions: list[int], which: OffsetSpec) -> dict[int, int]:
        """Asks again for as long as the client takes a broker for the leader that is not, or not yet."""
        offsets: dict[int, int] = {}
        deadline = asyncio.get_running_loop().time() + self._timeout
        while missing := [number for number in partitions if number not in offsets]:
            places = {TopicPartition(topic, number): which for number in missing}
            answers = self._client.list_offsets(places, isolation_level=self._isolation, request_timeout=self._timeout)
            for place, answer in answers.items():
                found = await self._result(answer, f"find the offsets of {topic}", unless=_WRONG_LEADER)
                if found is None:
                    continue
                if found.offset == OFFSET_INVALID:  # So librdkafka says that it got no answer.
                    raise Unreachable(
                        f"could not find the offsets of {topic}: the broker that leads it does not answer"
                    )
                offsets[place.partition] = found.offset
            if len(offsets) < len(partitions):
                if missing[-1] not in await self._partitions(topic):
                    raise StreamNotFound(f"the topic {topic} has no partition {missing[-1]}")
                if asyncio.get_running_loop().time() > deadline:
                    raise Unreachable(f"no broker leads partition {missing[0]} of {topic}")
                await asyncio.sleep(_AGAIN)
        return offsets

    async def _partitions(self, topic: str) -> Collection[int]:
        """The numbers of a topic's partitions, after which the client knows who leads them. Raises StreamNotFound.

        Unlike `topic` this asks any broker: after an outage the client may not know the controller for seconds.
        """
        doing = f"find the topic {topic}"
        found = (await self._metadata(topic, doing)).topics[topic]
        if found.error is not None:
            raise fault(found.error, doing)
        return found.partitions

    async def _despite_spread(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What is found; StreamNotFound counts only if it lasts, since the brokers of a cluster learn one by one."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (_SPREAD if self._is_cluster else 0)
        while True:
            try:
                return await ask()
            except StreamNotFound:
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(_AGAIN)

    async def _settle(self, name: str, *, is_there: bool) -> None:
        """Wait until the brokers know that a topic was created and is led, or that it was deleted."""
        deadline = asyncio.get_running_loop().time() + self._timeout
        while True:
            try:
                is_led = not (await self.topic(name)).leaderless
            except StreamNotFound:
                is_led = False
            if is_led == is_there:
                return
            if asyncio.get_running_loop().time() > deadline:
                raise Unreachable(f"the brokers do not know of the change to the topic {name} yet")
            await asyncio.sleep(_AGAIN)

    async def _metadata(self, topic: str | None, doing: str) -> ClusterMetadata:
        """What the cluster says of itself and its topics. `describe_cluster` can abort the process in an outage."""
        asking = asyncio.to_thread(self._client.list_topics, topic, self._timeout)
        found: ClusterMetadata = await self._wait(asyncio.ensure_future(asking), doing)
        self._is_cluster = self._is_cluster or len(found.brokers) > 1
        return found

    async def _result(self, answer: "Future[Any]", doing: str, *, unless: Iterable[str] = ()) -> Any:  # noqa: ANN401 - the client's answers
        """What the cluster answers; None if that is an error that is named in `unless`."""
        return await self._wait(asyncio.wrap_future(answer), doing, unless=unless)

    async def _wait(self, answer: "asyncio.Future[Any]", doing: str, *, unless: Iterable[str] = ()) -> Any:  # noqa: ANN401 - the client's answers
        answer.add_done_callback(_look_at)
        self._client.poll(0)
        self._errors.clear()
        while not (await asyncio.wait({answer}, timeout=_LOOK))[0]:
            self._client.poll(0)
            if denial := next(filter(is_denial, self._errors), None):
                raise fault(denial, doing)
        try:
            return answer.result()
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            if cause.name() in unless:
                return None
            raise fault(self._reason(cause), doing) from error

    def _reason(self, cause: KafkaError) -> KafkaError:
        """Why an answer did not come, if the client has heard why."""
        self._client.poll(0)
        heard = [error for error in self._errors if error.name() != "_ALL_BROKERS_DOWN"]
        return heard[-1] if heard and cause.name() in ("_TIMED_OUT", "_TRANSPORT") else cause

    def _limits(self) -> dict[str, float]:
        return {"request_timeout": self._timeout, "operation_timeout": self._timeout}


def _look_at(answer: "asyncio.Future[Any]") -> None:
    """Keep asyncio from complaining of an error that came when nobody waited for the answer any more."""
    if not answer.cancelled():
        answer.exception()

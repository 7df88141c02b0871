"""Exactly once back into Kafka: results and position in one of Kafka's own transactions."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, Self, TypeVar

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from msgspec import Struct
from msgspec.structs import replace

from echelon.brokers.kafka.admin import Admin
from echelon.brokers.kafka.faults import fault
from echelon.brokers.kafka.settings import Settings
from echelon.errors import BrokerError, EchelonError, StreamNotFound, Unreachable
from echelon.members.sinks.base import Batch, Place
from echelon.members.sinks.kept import Kept, commit_kept, falls_back, not_reversible, open_kept

T = TypeVar("T")

POSITIONS: Final = "__echelon-positions"
"""The topic that positions are committed for, since Kafka wants one that is there. Nothing is written to it."""

_MOST_REPLICAS: Final = 3
_THREADS: Final = 32
# Somebody else uses the transactional id by now.
_FENCED: Final = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
# A consumer group has just been given a coordinator.
_SOON: Final = frozenset({"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"})
_AGAIN: Final = 0.02


class Record(Struct, frozen=True):
    """One message on its way to a topic."""

    topic: str
    data: bytes
    key: bytes | None
    headers: list[tuple[str, str | bytes | None]]


class Outbox:
    """What handlers send in one batch. It goes out with the commit, and not at all without one."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def send(self, topic: str, data: bytes, key: bytes | None = None, headers: Mapping[str, str] | None = None) -> None:
        """Send a message, from any thread; messages for one partition of a topic keep their order."""
        self.records.append(Record(topic, data, key, list((headers or {}).items())))


class _Opened(Struct, frozen=True):
    """An epoch that was opened here: the producer that may commit under it, until Kafka fences it."""

    producer: Producer
    group: Any
    """The consumer group, as librdkafka wants it."""
    kept: Kept


class KafkaSink:
    """A sink on the Kafka at `url`, with the options of `KafkaBroker`. Handlers get an `Outbox`.

    Every partition has a transactional id of its own, `echelon.<group>.<partition>`: a new owner takes it over, and
    Kafka refuses what its forerunner still has under way. The position is committed in the same transaction as the
    results, as the offset of a consumer group of that same name; so whoever reads with `read_committed`, which is
    not every client's default, sees both or neither. Results that were committed cannot be taken back: a reset to
    an earlier position has to keep the output.

    Kafka forgets the offsets of a consumer group that commits nothing for `offsets.retention.minutes`, seven days
    unless changed; a group that stood still for that long goes on from its log's position.
    """

    def __init__(self, url: str, **options: object) -> None:
        self._settings = Settings(url, options)
        self._epochs: dict[str, _Opened] = {}

    async def __aenter__(self) -> Self:
        """Connect, and make the topic for positions if it is not there. Raises Unreachable, Denied."""
        admin = Admin(self._settings)
        try:
            await admin.topic(POSITIONS)
        except StreamNotFound:
            await admin.create_topic(POSITIONS, min(_MOST_REPLICAS, await admin.brokers()), {})
        self._threads = ThreadPoolExecutor(_THREADS, "echelon-kafka-sink")
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._epochs.clear()
        self._threads.shutdown(wait=False)

    async def open(self, place: Place, *, epoch: int, reset: int, position: int, keep: bool) -> int | None:
        """Write a new owner's epoch, and return where it goes on, as `Sink.open` describes it."""
        self._epochs.pop(place.partition, None)
        work = partial(self._open, place, epoch=epoch, reset=reset, position=position, keep=keep)
        opened = await self._run(work, f"open partition {place.partition} of {place.group}")
        if opened is None:
            return None
        self._epochs[place.partition] = opened
        return opened.kept.position

    @asynccontextmanager
    async def transaction(self, place: Place, *, epoch: int, begin: int) -> AsyncGenerator[Batch[Outbox], None]:
        """Begin a batch. Kafka's own transaction lasts only as long as the commit."""
        outbox = Outbox()
        yield Batch(outbox, partial(self._commit, outbox, place, epoch, begin))

    async def _commit(self, outbox: Outbox, place: Place, epoch: int, begin: int, end: int) -> bool:
        opened = self._epochs.get(place.partition)
        if opened is None:
            return False
        after = commit_kept(opened.kept, place, epoch=epoch, begin=begin, end=end)
        if after is None:
            return False
        # Until there is an answer, nobody knows where the sink stands. Only opening it again tells.
        del self._epochs[place.partition]
        work = partial(self._write, opened, outbox.records, after)
        done = await self._run(work, f"commit partition {place.partition} of {place.group}")
        if done:
            self._epochs.setdefault(place.partition, replace(opened, kept=after))
        return done

    async def _run(self, work: Callable[[], T], doing: str) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except KafkaException as error:
            raise fault(error.args[0], doing) from error

    def _open(self, place: Place, *, epoch: int, reset: int, position: int, keep: bool) -> _Opened | None:
        name = f"echelon.{place.group}.{place.partition}"

        def opened(before: Kept | None) -> Kept | None:
            after = open_kept(before, place, epoch=epoch, reset=reset, position=position)
            if after is not None and falls_back(before, after) and not keep:
                raise not_reversible(place, after.position)
            return after

        deadline = time.monotonic() + self._settings.timeout
        while time.monotonic() < deadline:
            if opened(self._read(name, "read_uncommitted")[0]) is None:
                return None
            producer = self._take_over(name)
            # From here on nobody else can commit. What was committed before may have changed what is right.
            before, group = self._read(name, "read_committed")
            after = opened(before)
            if after is None:
                return None
            found = _Opened(producer, group, after)
            if self._write(found, [], after):
                return found
        raise Unreachable(f"others keep opening partition {place.partition} of {place.group}")

    def _take_over(self, name: str) -> Producer:
        """A producer with the transactional id; the one that had it until now can commit no more."""
        limit = max(1000, int(self._settings.timeout * 1000))  # Not less for librdkafka.
        shared = self._settings.producer()
        properties: dict[str, Any] = {
            # Kafka is often not quite done with a transaction when the next begins.
            "retry.backoff.ms": "5",
            "retry.backoff.max.ms": "100",
            "reconnect.backoff.ms": "1",
            **shared,
            "transactional.id": name,
            "transaction.timeout.ms": str(limit),
            "socket.timeout.ms": str(min(limit, int(shared["socket.timeout.ms"]))),  # Not more than a transaction's.
            "delivery.report.only.error": True,
        }
        producer = Producer(properties)
        # Once over the first connection, once over the one to the broker that it has then learned of. With that one
        # it finds the coordinator at once; without, it looks again only after half a second.
        for _ in range(2):
            producer.list_topics(POSITIONS, timeout=self._settings.timeout)
        producer.init_transactions(self._settings.timeout)
        return producer

    def _read(self, name: str, isolation: str) -> tuple[Kept | None, Any]:
        """What is kept, and the consumer group as librdkafka wants it.

        With `read_committed`, a transaction that is about to change what is kept is waited for. (An admin client
        would do as well, but dies of an answer from the wrong coordinator: librdkafka 2.16.)
        """
        deadline = time.monotonic() + self._settings.timeout
        properties = {**self._settings.consumer(name), "reconnect.backoff.ms": "1", "isolation.level": isolation}
        consumer = Consumer(properties)
        try:
            while True:
                try:
                    [place] = consumer.committed([TopicPartition(POSITIONS, 0)], self._settings.timeout)
                except KafkaException as error:
                    if error.args[0].name() not in _SOON or time.monotonic() > deadline:
                        raise
                    time.sleep(_AGAIN)
                else:
                    return _decode(name, place), consumer.consumer_group_metadata()
        finally:
            consumer.close()

    def _write(self, opened: _Opened, records: Sequence[Record], kept: Kept) -> bool:
        """One transaction. False if somebody else has taken over."""
        producer, timeout = opened.producer, self._settings.timeout
        place = TopicPartition(POSITIONS, 0, kept.position, metadata=msgspec.json.encode(kept).decode())
        failures: list[EchelonError] = []
        try:
            producer.begin_transaction()
            _produce(producer, records, failures)
            producer.send_offsets_to_transaction([place], opened.group, timeout)
            producer.commit_transaction(timeout)
        except KafkaException as exception:
            error: KafkaError = exception.args[0]
            if error.name() in _FENCED:
                return False
            if not error.retriable() and not error.fatal():
                with suppress(KafkaException):  # Then Kafka does, after the timeout.
                    producer.abort_transaction(timeout)
            if failures:
                raise failures[0] from exception
            raise
        return True


def _decode(name: str, place: TopicPartition) -> Kept | None:
    if place.offset < 0:
        return None
    try:
        kept = msgspec.json.decode(place.metadata or "", type=Kept)
    except msgspec.DecodeError:
        kept = None
    if kept is None or kept.position != place.offset:
        raise BrokerError(
            f"the offset of the consumer group {name} was changed by hand",
            remedy="Delete the consumer group: the sink then goes on from the position of the group's log",
        )
    return kept


def _produce(producer: Producer, records: Sequence[Record], failures: list[EchelonError]) -> None:
    """Hand the records to the producer; why some of them could not be stored is in `failures` by the commit."""

    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(fault(error, f"write a result to {message.topic()}"))

    for record in records:
        while True:
            try:
                producer.produce(record.topic, record.data, record.key, headers=record.headers, on_delivery=note)
            except BufferError:
                producer.poll(0.1)  # There is room again when some are stored.
            else:
                break

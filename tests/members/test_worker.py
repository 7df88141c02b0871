"""One partition at work: what a worker does when its stream or its sink fails it, and how far it says it is."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import cast

from msgspec import structs

from echelon.brokers.memory import MemoryBroker
from echelon.errors import OutOfRange, Unreachable
from echelon.group.config import Config
from echelon.group.own import Own, Run
from echelon.group.records import Profile
from echelon.group.world import Partition, World
from echelon.members.batches import Batches
from echelon.members.counters import Counters
from echelon.members.desk import Desk
from echelon.members.failures import Failures
from echelon.members.handlers import understand
from echelon.members.options import Options
from echelon.members.transactions import Transactor
from echelon.members.worker import Processing, Worker
from echelon.model import Message
from tests.members.waiting import play, until

CONFIG = Config(streams=(), positions={}, retries=0)
AT_MOST_ONCE = structs.replace(CONFIG, delivery="at_most_once")


def run_of(first: int, end: int) -> list[Message]:
    return [Message("0", sequence, "s", b"k", (), b"", 0) for sequence in range(first, end)]


class Source:
    """A partition that gives what it is told to, and then waits; or fails."""

    def __init__(self, *parts: list[Message] | Exception) -> None:
        self.parts = list(parts)
        self.begun: list[int] = []
        self.closed = 0

    async def tail(self, position: int) -> AsyncGenerator[list[Message], None]:
        self.begun.append(position)
        try:
            while self.parts:
                part = self.parts.pop(0)
                if isinstance(part, Exception):
                    raise part
                yield part
            await asyncio.Event().wait()
        finally:
            self.closed += 1


class Played:
    """A worker on a source, whose handler notes what it gets."""

    def __init__(
        self,
        source: Source,
        *,
        config: Config = CONFIG,
        announce: Callable[[Run, int], Awaitable[bool]] | None = None,
        transactor: Transactor | None = None,
        seconds: float = 0.0,
        buffer: int = 5000,
    ) -> None:
        self.handled: list[int] = []
        self.wakes = 0
        self.run = Run(epoch=1, position=1)
        self.epoch_over = False
        self._seconds = seconds
        self._buffer = buffer
        self._failures = Failures(config, Counters(), self._bury, {})
        self.worker = Worker(
            source.tail,
            lambda _start, _end: source.tail(0),
            self.run,
            self._failures,
            process=self._process,
            announce=announce,
            transactor=transactor,
            wake=self._wake,
        )
        self.worker.start(idle=False)

    def _process(self, position: int, idled: Callable[[], None]) -> Processing:
        return Batches(
            self._handle,
            position,
            options=Options(batch=True, batch_size=2, buffer=self._buffer),
            failures=self._failures,
            deadline=lambda: 0 if self.epoch_over else 1 << 60,
            on_idle=idled,
        )

    async def _handle(self, messages: Sequence[Message]) -> None:
        await asyncio.sleep(self._seconds)
        self.handled += [message.sequence for message in messages]

    async def _bury(self, _message: Message, _error: Exception, _attempts: int) -> None:
        raise AssertionError

    def _wake(self) -> None:
        self.wakes += 1

    def turn(self, state: str) -> None:
        assert state in ("draining", "halted")
        self.run.state = "draining" if state == "draining" else "halted"
        self.worker.stop(cancel=state == "halted")

    def is_idle(self) -> bool:
        self.worker.update()
        return not self.run.busy


def test_a_stream_that_cannot_be_reached_is_read_again_after_the_last_message() -> None:
    async def body() -> None:
        source = Source(Unreachable("away"), run_of(1, 4), Unreachable("away again"), run_of(4, 6))
        played = Played(source)
        await until(lambda: len(played.handled) == 5)
        assert played.handled == [1, 2, 3, 4, 5]
        assert source.begun == [1, 1, 4]
        assert played.worker.failure is None
        played.turn("halted")

    play(body)


def test_whatever_else_ends_the_reading_is_told() -> None:
    async def body() -> None:
        played = Played(Source(run_of(1, 2), RuntimeError("odd")))
        await until(lambda: played.worker.failure is not None)
        assert isinstance(played.worker.failure, RuntimeError)
        assert played.wakes

    play(body)


def test_messages_that_were_deleted_end_it_or_are_passed_over_as_the_group_chose() -> None:
    error = OutOfRange("gone", partition="0", position=1, first=5, end=9)

    async def body() -> None:
        played = Played(Source(error))
        await until(lambda: played.worker.failure is error)
        source = Source(error, run_of(5, 7))
        played = Played(source, config=structs.replace(CONFIG, out_of_range="earliest"))
        await until(lambda: played.handled == [5, 6])
        assert source.begun == [1, 5]
        played.turn("halted")

    play(body)


def test_a_position_beyond_the_end_is_an_error_whatever_the_group_chose() -> None:
    error = OutOfRange("beyond", partition="0", position=10, first=1, end=5)

    async def body() -> None:
        played = Played(Source(error), config=structs.replace(CONFIG, out_of_range="earliest"))
        await until(lambda: played.worker.failure is error)

    play(body)


def test_it_is_busy_as_long_as_it_reads_so_that_nobody_forgets_it_before_it_was_stopped() -> None:
    async def body() -> None:
        source = Source(run_of(1, 4))
        played = Played(source)
        await until(lambda: len(played.handled) == 3)
        played.worker.update()
        assert played.run.busy
        assert played.run.position == 4
        played.turn("draining")
        await until(played.is_idle)
        assert source.closed == 1

    play(body)


def test_a_drained_worker_goes_on_where_it_stands() -> None:
    async def body() -> None:
        source = Source(run_of(1, 9))
        played = Played(source, seconds=0.02)
        await until(lambda: bool(played.handled))
        played.turn("draining")
        await until(played.is_idle)
        assert played.run.position == played.handled[-1] + 1 < 9
        source.parts = [run_of(played.run.position, 9)]
        played.run.state = "running"
        played.worker.start(idle=False)
        await until(lambda: len(played.handled) == 8)
        assert played.handled == list(range(1, 9))
        assert played.worker.count() == 8 - played.handled.index(source.begun[-1])
        played.turn("halted")

    play(body)


class SlowSink:
    """A transactor whose sink takes its time to open."""

    position = 1
    refused = False

    def __init__(self) -> None:
        self.opens = asyncio.Event()

    async def open_at_last(self) -> None:
        await self.opens.wait()


def test_what_was_counted_stays_so_while_the_sink_of_a_worker_that_goes_on_opens() -> None:
    async def body() -> None:
        sink = SlowSink()
        source = Source(run_of(1, 9))
        played = Played(source, transactor=cast("Transactor", sink))
        sink.opens.set()
        await until(lambda: len(played.handled) == 8)
        assert played.worker.count() == 8
        played.turn("draining")
        await until(played.is_idle)
        sink.opens.clear()
        source.parts = [run_of(9, 12)]
        played.run.state = "running"
        played.worker.start(idle=False)
        assert played.worker.count() == 0
        sink.opens.set()
        await until(lambda: len(played.handled) == 11)
        assert played.worker.count() == 3
        played.turn("halted")

    play(body)


def test_at_most_once_nothing_is_handled_before_it_is_announced_nor_counted_as_left_over_when_cancelled() -> None:
    async def body() -> None:
        announced = asyncio.Event()
        wanted: list[int] = []

        async def announce(_run: Run, end: int) -> bool:
            wanted.append(end)
            return await announced.wait()

        played = Played(Source(run_of(1, 9)), config=AT_MOST_ONCE, announce=announce, seconds=0.02)
        await until(lambda: wanted == [9])
        await asyncio.sleep(0.03)
        assert not played.handled
        announced.set()
        await until(lambda: bool(played.handled))
        played.turn("halted")
        await until(played.is_idle)
        assert len(played.handled) < 8
        assert played.run.position == 9

    play(body)


class Announcements:
    """Keeps announcements waiting until they are answered."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, asyncio.Future[bool]]] = []

    async def __call__(self, _run: Run, end: int) -> bool:
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.waiting.append((end, future))
        return await future


def test_at_most_once_a_batch_that_was_announced_is_handled_before_a_drain_ends() -> None:
    async def body() -> None:
        announce = Announcements()
        played = Played(Source(run_of(1, 5), run_of(5, 9)), config=AT_MOST_ONCE, announce=announce)
        await until(lambda: len(announce.waiting) == 1)
        played.turn("draining")
        await asyncio.sleep(0.02)
        assert not played.is_idle(), "the announcement may be accepted"
        announce.waiting[0][1].set_result(True)
        await until(played.is_idle)
        assert played.handled == [1, 2, 3, 4]
        assert played.run.position == 5
        assert len(announce.waiting) == 1, "nothing more is announced"

    play(body)


def test_at_most_once_a_batch_that_waits_for_room_is_handled_before_a_drain_ends() -> None:
    async def body() -> None:
        async def announce(_run: Run, _end: int) -> bool:
            return True

        source = Source(run_of(1, 5), run_of(5, 9))
        played = Played(source, config=AT_MOST_ONCE, announce=announce, seconds=0.02, buffer=4)
        await until(lambda: len(played.handled) == 2)
        played.turn("draining")
        await until(played.is_idle)
        assert played.handled == list(range(1, 9))
        assert played.run.position == 9

    play(body)


def test_at_most_once_a_batch_whose_announcement_was_lost_or_not_sent_is_left_to_the_next_owner() -> None:
    async def body() -> None:
        for sent in (True, False):
            announce = Announcements()
            played = Played(Source(run_of(1, 5)), config=AT_MOST_ONCE, announce=announce)
            await until(lambda: len(announce.waiting) == 1)  # noqa: B023 - the loop waits for it
            played.run.wanted, played.run.advanced = 5, 5 if sent else 1
            played.turn("draining")
            if sent:
                announce.waiting[0][1].set_result(False)
            await until(played.is_idle)
            assert not played.handled
            assert played.run.position == 1

    play(body)


def test_at_most_once_what_was_put_is_dropped_when_the_epoch_is_over() -> None:
    async def body() -> None:
        async def announce(_run: Run, _end: int) -> bool:
            return True

        played = Played(Source(run_of(1, 9)), config=AT_MOST_ONCE, announce=announce, seconds=0.02)
        await until(lambda: bool(played.handled))
        played.epoch_over = True
        played.turn("draining")
        await until(played.is_idle)
        assert len(played.handled) < 8

    play(body)


def announcing(desk: Desk, own: Own, run: Run, end: int) -> "asyncio.Future[bool]":
    """An announcement that was sent and waits to be read back."""
    own.runs["0"] = run
    desk.heard(World(partitions={"0": Partition("0", 1, 1, epoch=5)}))
    desk.workers["0"] = Played(Source()).worker
    return asyncio.ensure_future(desk._announce("0", run, end))


def test_at_most_once_what_another_owner_announced_lets_nobody_begin() -> None:
    async def body() -> None:
        async with MemoryBroker("memory://worker") as broker:
            own = Own("me", Profile("me"), began=0)
            desk = Desk(broker, "group", understand(lambda message: message), Options(), own, lambda: None)
            run = Run(epoch=5, position=1)
            answer = announcing(desk, own, run, 10)
            await asyncio.sleep(0)
            assert run.wanted == 10
            desk.heard(World(partitions={"0": Partition("0", 20, 1, epoch=6)}))
            await asyncio.sleep(0.01)
            assert not answer.done()
            desk.heard(World(partitions={"0": Partition("0", 10, 1, epoch=5)}))
            assert await answer
            desk.workers["0"].stop(cancel=True)

    play(body)


def test_at_most_once_an_announcement_is_given_up_in_a_drain_when_a_later_record_was_read_back() -> None:
    async def body() -> None:
        async with MemoryBroker("memory://worker") as broker:
            own = Own("me", Profile("me"), began=0)
            desk = Desk(broker, "group", understand(lambda message: message), Options(), own, lambda: None)
            answer = announcing(desk, own, Run(epoch=5, position=1), 10)
            await asyncio.sleep(0)
            same = World(partitions={"0": Partition("0", 1, 1, epoch=5)})
            own.lease = 100
            own.turn("0", "draining", 100)
            desk.heard(same)
            await asyncio.sleep(0.01)
            assert not answer.done(), "what was read back may have been sent before it"
            own.lease = 101
            desk.heard(same)
            assert not await answer

            own.turn("0", "running", 102)
            answer = announcing(desk, own, own.runs["0"], 10)
            await asyncio.sleep(0)
            own.turn("0", "draining", 200)
            desk.heard(World(partitions={"0": Partition("0", 1, 1, epoch=6)}))
            assert not await answer, "a reset has ended the epoch"
            desk.workers["0"].stop(cancel=True)

    play(body)

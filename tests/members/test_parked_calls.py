"""Parked keys that the group asks to be tried again or skipped: each call is answered once, whenever it comes."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec import structs

from echelon.errors import OutOfRange, Unreachable
from echelon.group.config import Config
from echelon.group.own import Run
from echelon.group.world import Called
from echelon.members.counters import Counters
from echelon.members.failures import Failures
from echelon.members.handlers import understand
from echelon.members.lanes import Lanes
from echelon.members.options import Options
from echelon.members.worker import Worker
from echelon.model import Message
from tests.members.waiting import play, until

CONFIG = Config(streams=(), positions={}, retries=0, on_failure="park")
LANES = 4
RETRY, SKIP = Called(101, skip=False), Called(102, skip=True)


class Parked:
    """A worker that stands behind stored messages, one letter each, of which those of the key k are parked.

    Messages in `failing` fail once, those in `held` wait until they are taken out. With `ends_all`, the handler ends
    what it has begun when it is cancelled.
    """

    def __init__(self, keys: str = "kakbk", *, config: Config = CONFIG, position: int = 6) -> None:
        self.stored = [Message("0", n, "s", key.encode(), (), b"", 0) for n, key in enumerate(keys, 1)]
        self.handled: list[int] = []
        self.failing: set[int] = set()
        self.held: set[int] = set()
        self.cancelled: set[int] = set()
        """Messages of which the handler waits, once, for what others have cancelled."""
        self.ends_all = False
        self.slow = False
        """The tail gives no messages yet."""
        self.troubles: dict[int, Exception] = {}
        """What a read that comes to this message raises, once."""
        self.away = False
        self.reads = 0
        self.run = Run(epoch=1, position=position)
        self.failures = Failures(config, Counters(), self._bury, {"k": 1})
        self._pool = ThreadPoolExecutor(1)
        self.worker = Worker(
            self._tail,
            self._read,
            self.run,
            self.failures,
            process=self._process,
            announce=None,
            transactor=None,
            wake=lambda: None,
        )

    def _process(self, position: int, idled: Callable[[], None]) -> Lanes:
        return Lanes(
            understand(self._handle),
            1,
            position,
            options=Options(lanes=LANES),
            failures=self.failures,
            pool=self._pool,
            deadline=lambda: 1 << 60,
            on_idle=idled,
        )

    async def _handle(self, message: Message) -> None:
        try:
            while message.sequence in self.held:
                await asyncio.sleep(0.002)
        except asyncio.CancelledError:
            if not self.ends_all:
                raise
        if message.sequence in self.cancelled:
            self.cancelled.remove(message.sequence)
            raise asyncio.CancelledError
        if message.sequence in self.failing:
            self.failing.remove(message.sequence)
            raise ValueError(message.sequence)
        self.handled.append(message.sequence)

    async def _bury(self, _message: Message, _error: Exception, _attempts: int) -> None:
        raise AssertionError

    async def _tail(self, position: int) -> AsyncGenerator[list[Message], None]:
        while self.slow:
            await asyncio.sleep(0.002)
        if messages := [message for message in self.stored if message.sequence >= position]:
            yield messages
        await asyncio.Event().wait()

    async def _read(self, start: int, end: int) -> AsyncGenerator[list[Message], None]:
        self.reads += 1
        if self.away:
            raise Unreachable("away")
        for message in self.stored:
            if start <= message.sequence < end:
                if trouble := self.troubles.pop(message.sequence, None):
                    raise trouble
                yield [message]

    async def start(self, *, idle: bool = False) -> None:
        self.run.state = "draining" if idle else "running"
        self.worker.start(idle=idle)
        await asyncio.sleep(0.01)

    async def stop(self, *, cancel: bool = False) -> None:
        self.run.state = "halted" if cancel else "draining"
        self.worker.stop(cancel=cancel)
        await until(self.is_idle)

    def is_idle(self) -> bool:
        self.worker.update()
        return not self.run.busy

    async def until_answered(self, call: Called, holds: Callable[[], bool]) -> None:
        """The worker hears of the call with every record, until the condition holds and a few times more."""

        def repeat() -> bool:
            self.worker.answer({"k": call})
            return holds()

        await until(repeat)
        for _ in range(3):
            self.worker.answer({"k": call})
            await asyncio.sleep(0.005)
        await self.stop()


def test_a_call_that_comes_while_the_partition_drains_for_a_cut_is_answered_when_it_goes_on() -> None:
    async def body() -> None:
        parked = Parked()
        await parked.start()
        await parked.stop()
        parked.worker.answer({"k": RETRY})
        await asyncio.sleep(0.01)
        assert not parked.handled
        await parked.start()
        await parked.until_answered(RETRY, lambda: not parked.failures.parked)
        assert parked.handled == [1, 3, 5]

    play(body)


def test_a_call_that_comes_while_a_partition_only_finds_out_where_it_stands_is_answered_when_it_goes_on() -> None:
    async def body() -> None:
        parked = Parked()
        await parked.start(idle=True)
        parked.worker.answer({"k": SKIP})
        await asyncio.sleep(0.01)
        assert parked.failures.parked == {"k": 1}
        await parked.start()
        await parked.until_answered(SKIP, lambda: not parked.failures.parked)
        assert not parked.handled

    play(body)


def test_a_stream_that_cannot_be_reached_is_read_again_after_the_last_parked_message() -> None:
    async def body() -> None:
        parked = Parked()
        parked.troubles = {1: Unreachable("away"), 5: Unreachable("away again")}
        await parked.start()
        parked.worker.answer({"k": RETRY})
        await until(lambda: not parked.failures.parked)
        assert parked.handled == [1, 3, 5]
        await parked.stop()

    play(body)


def test_a_call_that_a_drain_finds_waiting_for_the_broker_is_answered_when_it_goes_on() -> None:
    async def body() -> None:
        parked = Parked()
        parked.away = True
        await parked.start()
        parked.worker.answer({"k": RETRY})
        await until(lambda: parked.reads > 0)
        await parked.stop()
        assert (parked.handled, parked.failures.parked) == ([], {"k": 1})
        parked.away = False
        await parked.start()
        await parked.until_answered(RETRY, lambda: not parked.failures.parked)
        assert parked.handled == [1, 3, 5]
        assert parked.worker.failure is None

    play(body)


def test_a_call_whose_answer_was_cancelled_is_answered_when_it_goes_on() -> None:
    async def body() -> None:
        parked = Parked()
        parked.held = {3}
        await parked.start()
        parked.worker.answer({"k": RETRY})
        await until(lambda: parked.handled == [1])
        await parked.stop(cancel=True)
        parked.held.clear()
        await parked.start()
        await parked.until_answered(RETRY, lambda: not parked.failures.parked)
        assert parked.handled == [1, 1, 3, 5]

    play(body)


def test_a_call_is_answered_when_it_goes_on_though_the_handler_ended_what_it_had_begun_when_it_was_cancelled() -> None:
    async def body() -> None:
        parked = Parked()
        parked.held, parked.ends_all = {1}, True
        await parked.start()
        parked.worker.answer({"k": RETRY})
        await asyncio.sleep(0.02)
        await parked.stop(cancel=True)
        assert (parked.handled, parked.failures.parked) == ([1], {"k": 1})
        parked.held.clear()
        await parked.start()
        await parked.until_answered(RETRY, lambda: not parked.failures.parked)
        assert parked.handled == [1, 1, 3, 5]
        assert parked.worker.count() == 3

    play(body)


def test_a_parked_message_whose_handler_others_have_cancelled_has_failed_and_the_call_is_answered() -> None:
    async def body() -> None:
        parked = Parked()
        parked.cancelled = {3}
        await parked.start()
        await parked.until_answered(RETRY, lambda: parked.failures.parked == {"k": 3})
        assert parked.handled == [1]

    play(body)


def test_a_skip_that_comes_before_the_first_messages_do_is_answered_once_the_parked_ones_were_passed_over() -> None:
    async def body() -> None:
        parked = Parked("akka", position=1)
        parked.failures.parked["k"] = 3
        parked.slow = True
        await parked.start()
        parked.worker.answer({"k": SKIP})
        await asyncio.sleep(0.02)
        assert parked.failures.parked == {"k": 3}
        parked.slow = False
        await parked.until_answered(SKIP, lambda: not parked.failures.parked and len(parked.handled) > 1)
        assert parked.handled == [1, 4]

    play(body)


def test_a_call_is_answered_once_though_its_key_fails_again_and_a_later_call_anew() -> None:
    async def body() -> None:
        parked = Parked()
        parked.failing = {3}
        await parked.start()
        await parked.until_answered(RETRY, lambda: parked.failures.parked == {"k": 3})
        assert parked.handled == [1]
        await parked.start()
        later = Called(103, skip=False)
        await parked.until_answered(later, lambda: not parked.failures.parked)
        assert parked.handled == [1, 3, 5]

    play(body)


@pytest.mark.parametrize("failing", [1, 3], ids=["at once", "further on"])
@pytest.mark.parametrize("skip", [True, False], ids=["skip", "retry"])
def test_a_call_that_comes_while_a_retry_runs_that_then_fails_is_answered_though_the_world_has_it_no_more(
    failing: int, skip: bool
) -> None:
    async def body() -> None:
        parked = Parked()
        parked.held, parked.failing = {failing}, {failing}
        await parked.start()
        parked.worker.answer({"k": RETRY})
        await asyncio.sleep(0.01)
        parked.worker.answer({"k": Called(102, skip=skip)})
        parked.held.clear()
        await until(lambda: not parked.failures.parked)
        assert parked.handled == ([n for n in (1, 3, 5) if n < failing] if skip else [1, 3, 5])
        assert not parked.failing
        await parked.stop()

    play(body)


def test_a_key_is_taken_up_once_all_before_its_last_message_is_done_and_only_from_its_first_parked_one_on() -> None:
    async def body() -> None:
        other = next(key for key in "abcdefgh" if hash(key.encode()) % LANES != hash(b"k") % LANES)
        parked = Parked(f"{other}kk{other}k", position=1)
        parked.failures.parked.clear()
        parked.held, parked.failing = {1}, {3}
        await parked.start()
        await until(lambda: parked.failures.parked == {"k": 3})
        parked.worker.answer({"k": RETRY})
        await asyncio.sleep(0.02)
        assert parked.failures.parked == {"k": 3}, "messages of the key may still be on their way"
        parked.held.clear()
        await until(lambda: not parked.failures.parked)
        assert [n for n in parked.handled if n in (2, 3, 5)] == [2, 3, 5]
        await parked.stop()

    play(body)


def test_parked_messages_that_were_deleted_end_it_or_are_passed_over_as_the_group_chose() -> None:
    async def body() -> None:
        for policy in ("fail", "earliest"):
            error = OutOfRange("gone", partition="0", position=1, first=4, end=6)
            parked = Parked(config=structs.replace(CONFIG, out_of_range=policy))
            parked.troubles = {1: error}
            await parked.start()
            parked.worker.answer({"k": RETRY})
            if policy == "fail":
                await until(lambda: parked.worker.failure is error)  # noqa: B023 - the loop waits for it
            else:
                await until(lambda: not parked.failures.parked)  # noqa: B023 - as above
                assert parked.handled == [5]
            await parked.stop(cancel=True)

    play(body)

"""Lanes: order by key with concurrency across keys, the watermark, back-pressure, retries aside, stopping."""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from echelon.errors import InvalidConfig, StreamNotFound, Unreachable
from echelon.group.config import Config
from echelon.members.counters import Counters
from echelon.members.failures import Failures
from echelon.members.handlers import Handler, understand
from echelon.members.lanes import Lanes
from echelon.members.options import Options
from echelon.model import Message
from tests.members.waiting import play, until

FAR = 1 << 60
WINDOW = 8
RETRY = Config(streams=(), positions={}, retries=2, backoff=(0.001, 0.002))


def message(sequence: int, key: str) -> Message:
    return Message("0", sequence, "s", key.encode(), (), b"", 0)


class Played:
    """A handler that notes what it does, and lanes around it. Messages fail as often as `failures` says."""

    def __init__(
        self,
        *,
        waits: bool = False,
        width: int = 4,
        seconds: Callable[[Message], float] = lambda _: 0.0,
        failures: dict[int, int] | None = None,
        config: Config = RETRY,
        window: int = WINDOW,
        handler: Handler | None = None,
    ) -> None:
        self.begun: dict[bytes | None, list[int]] = defaultdict(list)
        self.done: list[int] = []
        self.most_at_once = 0
        self.broken: list[str] = []
        self.deadline = FAR
        self.idled = 0
        self.buried: list[int] = []
        self.given_up: set[int] = set()
        self.refusals: list[Exception] = []
        self.after_failure: Callable[[], None] = lambda: None
        self._seconds = seconds
        self._fail = dict(failures or {})
        self.running: dict[bytes | None, int] = {}
        self._lock = threading.Lock()
        handler = handler or (self._handle_waiting if waits else self._handle_plain)
        self.pool = ThreadPoolExecutor(width)
        self.failures = Failures(config, Counters(), self._bury, {})
        self.lanes = Lanes(
            understand(handler),
            7,
            1,
            options=Options(lanes=width, buffer=window),
            failures=self.failures,
            pool=self.pool,
            deadline=lambda: self.deadline,
            on_idle=self._idle,
        )

    def _begin(self, message: Message, epoch: int) -> None:
        with self._lock:
            if epoch != 7:
                self.broken.append(f"epoch {epoch}")
            if message.key in self.running:
                self.broken.append(f"{message.sequence} while {self.running[message.key]} runs, of one key")
            self.running[message.key] = message.sequence
            self.begun[message.key].append(message.sequence)
            self.most_at_once = max(self.most_at_once, len(self.running))

    def _end(self, message: Message) -> None:
        with self._lock:
            del self.running[message.key]
            if self._fail.get(message.sequence, 0):
                self._fail[message.sequence] -= 1
                self.after_failure()
                raise ValueError(f"{message.sequence} fails")
            self.done.append(message.sequence)

    def _handle_plain(self, message: Message, epoch: int) -> None:
        self._begin(message, epoch)
        time.sleep(self._seconds(message))
        self._end(message)

    async def _handle_waiting(self, message: Message, epoch: int) -> None:
        self._begin(message, epoch)
        try:
            await asyncio.sleep(self._seconds(message))
        except asyncio.CancelledError:
            self._end(message)
            raise
        self._end(message)

    async def _bury(self, message: Message, _error: Exception, _attempts: int) -> None:
        if self.refusals:
            raise self.refusals.pop()
        self.buried.append(message.sequence)

    def _idle(self) -> None:
        self.idled += 1

    def fence(self) -> None:
        self.deadline = 0

    def check_watermark(self) -> None:
        """Everything before the position is done, and nothing beyond what was put is counted."""
        position = self.lanes.position
        missing = set(range(1, position)) - set(self.done) - set(self.buried) - self.given_up
        assert not missing, f"the position is {position}, and {missing} are not done"

    async def until_idle(self) -> None:
        def is_idle() -> bool:
            self.check_watermark()
            return not self.lanes.in_flight and not self.lanes.busy

        await until(is_idle)


PUTS = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=5), min_size=1, max_size=5)


@given(
    puts=PUTS,
    waits=st.booleans(),
    width=st.integers(1, 3),
    slow=st.sets(st.sampled_from("abc")),
    failures=st.dictionaries(st.integers(1, 10), st.integers(1, 2), max_size=3),
    pauses=st.lists(st.sampled_from([0.0, 0.002]), min_size=5, max_size=5),
)
@example(puts=[["a"], ["a", "b", "c"]], waits=False, width=3, slow={"a"}, failures={}, pauses=[0.0] * 5)
def test_each_key_is_handled_in_order_and_one_at_a_time_whatever_is_slow_or_fails(
    puts: list[list[str]], waits: bool, width: int, slow: set[str], failures: dict[int, int], pauses: list[float]
) -> None:
    async def body() -> None:
        def seconds(message: Message) -> float:
            return 0.003 if (message.key or b"").decode() in slow else 0.0

        played = Played(waits=waits, width=width, seconds=seconds, failures=failures)
        sent: dict[bytes | None, list[int]] = defaultdict(list)
        count = 0
        for keys, pause in zip(puts, pauses, strict=False):
            messages = [message(count + number, key) for number, key in enumerate(keys, 1)]
            count += len(messages)
            for each in messages:
                sent[each.key].append(each.sequence)
            await played.lanes.put(messages)
            assert played.lanes.in_flight <= WINDOW
            assert played.lanes.end == count + 1
            await asyncio.sleep(pause)
        await played.until_idle()
        played.pool.shutdown()
        assert not played.broken
        assert sorted(played.done) == list(range(1, count + 1))
        assert played.lanes.position == count + 1
        assert played.lanes.handled == count
        for key, sequences in sent.items():
            # A message that failed is begun again, before any later one of its key.
            assert list(dict.fromkeys(played.begun[key])) == sequences
            assert played.begun[key] == sorted(played.begun[key])

    play(body)


@given(
    puts=PUTS,
    waits=st.booleans(),
    width=st.integers(1, 3),
    slow=st.sets(st.sampled_from("abc")),
    failures=st.dictionaries(st.integers(1, 10), st.integers(1, 3), max_size=2),
    delay=st.floats(0, 0.01),
    cancel=st.booleans(),
)
def test_a_stop_at_any_moment_leaves_nothing_running_and_a_position_that_holds(
    puts: list[list[str]],
    waits: bool,
    width: int,
    slow: set[str],
    failures: dict[int, int],
    delay: float,
    cancel: bool,
) -> None:
    async def body() -> None:
        def seconds(message: Message) -> float:
            return 0.002 if (message.key or b"").decode() in slow else 0.0

        played = Played(waits=waits, width=width, seconds=seconds, failures=failures)

        async def put_all() -> None:
            count = 0
            for keys in puts:
                await played.lanes.put([message(count + number, key) for number, key in enumerate(keys, 1)])
                count += len(keys)

        putting = asyncio.ensure_future(put_all())
        await asyncio.sleep(delay)
        played.lanes.stop(cancel=cancel)
        await putting
        await until(lambda: not played.lanes.busy)
        played.pool.shutdown()
        assert not played.broken
        assert not played.running, "whoever takes over would run beside it"
        played.check_watermark()
        counted = set(range(1, played.lanes.position))
        if not cancel and not failures:
            assert set(played.done) == counted, "whoever takes over would do it again"

    play(body)


BOTH = pytest.mark.parametrize("waits", [False, True], ids=["plain", "async"])


def run_of(keys: str, first: int = 1) -> list[Message]:
    """Messages with these keys, one letter each."""
    return [message(sequence, key) for sequence, key in enumerate(keys, first)]


@BOTH
def test_keys_run_side_by_side_also_after_messages_that_were_fast(waits: bool) -> None:
    async def body() -> None:
        played = Played(waits=waits, width=8, seconds=lambda m: 0.0 if m.sequence <= 400 else 0.02, window=5000)
        for first in range(1, 400, 100):
            await played.lanes.put(run_of("abcdefgh" * 12 + "abcd", first))
        await played.until_idle()
        played.most_at_once = 0
        await played.lanes.put(run_of("abcdefghijklmnopqrstuvwxyz" * 2, 401))
        await played.until_idle()
        assert played.most_at_once >= 4
        assert not played.broken

    play(body)


@BOTH
def test_put_waits_while_the_buffer_is_full(waits: bool) -> None:
    async def body() -> None:
        played = Played(waits=waits, seconds=lambda _: 0.05)
        await played.lanes.put(run_of("abcdabcd"))
        putting = asyncio.ensure_future(played.lanes.put(run_of("ab", 9)))
        await asyncio.sleep(0.01)
        assert not putting.done()
        assert played.lanes.in_flight == WINDOW
        await putting
        await played.until_idle()
        assert played.lanes.position == 11

    play(body)


@BOTH
def test_only_the_key_of_a_message_that_fails_waits_while_it_is_retried(waits: bool) -> None:
    async def body() -> None:
        config = structs.replace(RETRY, retries=3, backoff=(0.1, 0.1))
        played = Played(waits=waits, width=1, failures={2: 2}, config=config)
        await played.lanes.put(run_of("abcabc"))
        await until(lambda: set(played.done) == {1, 3, 4, 6})
        assert played.lanes.position == 2
        await played.until_idle()
        assert played.done[-2:] == [2, 5]
        assert not played.broken

    play(body)


@BOTH
def test_a_message_that_fails_for_good_stops_its_key_and_holds_the_position(waits: bool) -> None:
    async def body() -> None:
        played = Played(waits=waits, width=2, failures={3: 99})
        await played.lanes.put(run_of("abcabc"))
        await until(lambda: played.failures.failure is not None)
        await until(lambda: not played.lanes.busy)
        assert isinstance(played.failures.failure, ValueError)
        assert sorted(played.done) == [1, 2, 4, 5]
        assert played.begun[b"c"] == [3] * 3
        assert played.lanes.position == 3

    play(body)


@BOTH
def test_a_dead_letter_lets_its_key_go_on(waits: bool) -> None:
    async def body() -> None:
        played = Played(waits=waits, failures={2: 99}, config=structs.replace(RETRY, on_failure="dead_letter"))
        await played.lanes.put(run_of("abcabc"))
        await played.until_idle()
        assert played.buried == [2]
        assert sorted(played.done) == [1, 3, 4, 5, 6]
        assert played.lanes.position == 7

    play(body)


def test_a_dead_letter_that_cannot_be_stored_now_is_tried_again() -> None:
    async def body() -> None:
        played = Played(failures={2: 99}, config=structs.replace(RETRY, on_failure="dead_letter"))
        played.refusals = [Unreachable("nobody answers"), Unreachable("nobody answers")]
        await played.lanes.put(run_of("abcabc"))
        await played.until_idle()
        assert played.buried == [2]

    play(body)


def test_a_dead_letter_that_nobody_takes_stops_the_partition() -> None:
    async def body() -> None:
        played = Played(failures={2: 99}, config=structs.replace(RETRY, on_failure="dead_letter"))
        played.refusals = [StreamNotFound("no stream takes it")]
        await played.lanes.put(run_of("abcabc"))
        await until(lambda: played.failures.failure is not None)
        assert isinstance(played.failures.failure, StreamNotFound)
        assert played.lanes.position == 2

    play(body)


@BOTH
def test_at_most_once_nothing_is_tried_again(waits: bool) -> None:
    async def body() -> None:
        played = Played(waits=waits, failures={2: 99}, config=structs.replace(RETRY, delivery="at_most_once"))
        played.given_up = {2}
        await played.lanes.put(run_of("abcabc"))
        await played.until_idle()
        assert played.begun[b"b"] == [2, 5]
        assert played.lanes.position == 7

    play(body)


@BOTH
def test_a_drain_lets_what_was_begun_end_and_begins_nothing_after_it(waits: bool) -> None:
    async def body() -> None:
        played = Played(waits=waits, width=2, seconds=lambda _: 0.02)
        await played.lanes.put(run_of("abababab"))
        await until(lambda: bool(played.begun))
        played.lanes.stop(cancel=False)
        await until(lambda: not played.lanes.busy)
        assert played.idled == 1
        assert sorted(played.done) == list(range(1, played.lanes.position))
        assert played.lanes.position < 8

    play(body)


@BOTH
def test_a_drain_leaves_nothing_done_that_the_position_does_not_count(waits: bool) -> None:
    async def body() -> None:
        played = Played(waits=waits, width=4, seconds=lambda m: 0.02 if m.key == b"a" else 0.001, window=5000)
        await played.lanes.put(run_of("abcdefghijklmnopqrstuvwxyz" * 20))
        await until(lambda: len(played.done) > 30)
        played.lanes.stop(cancel=False)
        await played.lanes.put(run_of("abc", 521))
        await until(lambda: not played.lanes.busy)
        assert sorted(played.done) == list(range(1, played.lanes.position))
        assert played.lanes.position < 521
        assert not played.broken

    play(body)


@BOTH
def test_at_most_once_a_drain_handles_all_that_was_put(waits: bool) -> None:
    async def body() -> None:
        config = structs.replace(RETRY, delivery="at_most_once")
        played = Played(waits=waits, width=2, seconds=lambda _: 0.002, config=config)
        await played.lanes.put(run_of("abababab"))
        await until(lambda: bool(played.begun))
        played.lanes.stop(cancel=False)
        await until(lambda: not played.lanes.busy)
        assert sorted(played.done) == list(range(1, 9))

    play(body)


@BOTH
def test_a_drain_does_not_wait_for_a_key_that_is_to_be_retried(waits: bool) -> None:
    async def body() -> None:
        played = Played(waits=waits, failures={2: 1}, config=structs.replace(RETRY, backoff=(60.0, 60.0)))
        await played.lanes.put(run_of("abc"))
        await until(lambda: len(played.done) == 2)
        played.lanes.stop(cancel=False)
        await until(lambda: not played.lanes.busy)
        assert played.lanes.position == 2

    play(body)


@BOTH
def test_a_parked_key_is_passed_over_until_it_is_taken_up_again(waits: bool) -> None:
    async def body() -> None:
        played = Played(waits=waits, failures={2: 3}, config=structs.replace(RETRY, on_failure="park"))
        played.given_up = {2, 4}
        await played.lanes.put(run_of("abcbc"))
        await played.until_idle()
        assert played.failures.parked == {"b": 2}
        assert sorted(played.done) == [1, 3, 5]
        assert played.lanes.position == 6
        assert played.lanes.handled == 3
        assert not played.lanes.unpark("b", 4), "message 4 was passed over too"
        assert await played.lanes.handle_again(message(2, "b"))
        assert await played.lanes.handle_again(message(4, "b"))
        assert played.lanes.unpark("b", 6)
        await played.lanes.put(run_of("b", 6))
        await played.until_idle()
        assert played.done[-3:] == [2, 4, 6]
        assert not played.failures.parked

    play(body)


def test_a_plain_handler_that_was_cancelled_still_runs_until_it_ends() -> None:
    async def body() -> None:
        release = threading.Event()
        played = Played(width=2, seconds=lambda _: float(not release.wait(10)))
        await played.lanes.put(run_of("ab"))
        await until(lambda: bool(played.begun))
        played.lanes.stop(cancel=True)
        await asyncio.sleep(0.05)
        assert played.lanes.busy, "a thread still runs the handler"
        assert played.idled == 0
        release.set()
        await until(lambda: not played.lanes.busy)
        await until(lambda: played.idled == 1)

    play(body)


def test_a_coroutine_that_is_cancelled_runs_until_it_ends() -> None:
    async def body() -> None:
        ended = asyncio.Event()

        async def handle(_message: Message) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.05)
                ended.set()

        played = Played(handler=handle)
        await played.lanes.put(run_of("a"))
        await asyncio.sleep(0.01)
        played.lanes.stop(cancel=True)
        assert played.lanes.busy
        await until(lambda: not played.lanes.busy)
        assert ended.is_set()
        assert played.lanes.position == 1

    play(body)


@BOTH
def test_nothing_begins_while_the_instance_is_fenced_and_all_goes_on_when_it_is_not(waits: bool) -> None:
    async def body() -> None:
        played = Played(waits=waits, width=2)
        played.deadline = 0
        await played.lanes.put(run_of("abcab"))
        await asyncio.sleep(0.05)
        assert not played.begun
        played.deadline = FAR
        await played.until_idle()
        assert sorted(played.done) == [1, 2, 3, 4, 5]

    play(body)


@BOTH
def test_a_message_that_is_to_be_retried_while_the_instance_is_fenced_is_not_lost(waits: bool) -> None:
    async def body() -> None:
        played = Played(waits=waits, width=2, failures={1: 1})
        played.after_failure = played.fence
        await played.lanes.put(run_of("aa"))
        await asyncio.sleep(0.05)
        assert not played.done
        assert played.lanes.position == 1
        played.deadline = FAR
        await played.until_idle()
        assert played.done == [1, 2]

    play(body)


@BOTH
def test_a_fenced_instance_stops_at_once(waits: bool) -> None:
    async def body() -> None:
        played = Played(waits=waits, width=2, failures={1: 1})
        played.after_failure = played.fence
        await played.lanes.put(run_of("ab"))
        await asyncio.sleep(0.02)
        played.lanes.stop(cancel=True)
        await until(lambda: not played.lanes.busy)

    play(body)


def test_coroutines_that_never_wait_let_the_event_loop_in() -> None:
    async def body() -> None:
        async def handle(_message: Message) -> None:
            time.sleep(0.001)  # noqa: ASYNC251 - this is what such a handler does wrong

        played = Played(handler=handle, window=5000)
        longest, last = 0.0, time.monotonic()
        await played.lanes.put(run_of("abcdefgh" * 100))
        while played.lanes.in_flight:
            await asyncio.sleep(0)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        assert longest < 0.3, "all messages in one go take above 0.8 s"

    play(body)


def test_a_handler_that_becomes_slow_is_interrupted_by_a_stop_after_a_slice() -> None:
    async def body() -> None:
        played = Played(width=1, seconds=lambda m: 0.0 if m.sequence <= 2000 else 0.005, window=5000)
        await played.lanes.put(run_of("ab" * 1000))
        await played.until_idle()
        await played.lanes.put(run_of("ab" * 100, 2001))
        await until(lambda: len(played.done) > 2010)
        assert played.lanes.position > 2001, "a slice has ended, though it was meant to be longer"
        await played.until_idle()

    play(body)


def test_a_plain_handler_that_returns_a_coroutine_is_a_failure() -> None:
    async def body() -> None:
        async def handle(message: Message) -> bytes:
            return message.data

        def hand_on(message: Message) -> Awaitable[bytes]:
            return handle(message)

        played = Played(handler=hand_on, config=structs.replace(RETRY, retries=0))
        await played.lanes.put(run_of("abcabc"))
        await until(lambda: played.failures.failure is not None)
        await until(lambda: not played.lanes.busy)
        assert isinstance(played.failures.failure, InvalidConfig)
        assert "async def" in str(played.failures.failure)
        assert played.lanes.position == 1

    play(body)

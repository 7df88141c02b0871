"""Lanes: drains, stops and fences; nothing is left running, and the position holds."""

import asyncio
import threading
from functools import partial

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from echelon.model import Message
from tests.members.played_lanes import BOTH, FAR, PUTS, RETRY, Played, message, run_of
from tests.members.waiting import play, until


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
def test_a_drain_does_not_wait_for_a_key_that_fails_meanwhile(waits: bool) -> None:
    async def body() -> None:
        played = Played(waits=waits, width=1, failures={1: 1}, config=structs.replace(RETRY, backoff=(60.0, 60.0)))
        loop = asyncio.get_running_loop()
        played.after_failure = lambda: loop.call_soon_threadsafe(partial(played.lanes.stop, cancel=False))
        await played.lanes.put(run_of("aa"))
        await until(lambda: not played.lanes.busy)
        assert played.begun[b"a"] == [1]
        assert played.lanes.position == 1
        assert played.failures.failure is None

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
def test_a_fenced_instance_stops_at_once(waits: bool) -> None:
    async def body() -> None:
        played = Played(waits=waits, width=2, failures={1: 1})
        played.after_failure = played.fence
        await played.lanes.put(run_of("ab"))
        await asyncio.sleep(0.02)
        played.lanes.stop(cancel=True)
        await until(lambda: not played.lanes.busy)

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


def test_what_a_coroutine_handler_had_done_counts_when_it_is_cancelled_in_the_next_message() -> None:
    """They are handled in one slice, which the cancellation ends in its middle. `join --count` relies on it."""

    async def body() -> None:
        played = Played(waits=True, width=1, seconds=lambda each: 60.0 if each.sequence == 4 else 0.0)
        await played.lanes.put([message(number, "a") for number in range(1, 7)])
        await until(lambda: b"a" in played.running and played.done == [1, 2, 3])
        await asyncio.sleep(0.02)
        played.lanes.stop(cancel=True)
        await until(lambda: not played.lanes.busy)
        assert (played.lanes.position, played.lanes.handled) == (4, 3)
        played.pool.shutdown()

    play(body)

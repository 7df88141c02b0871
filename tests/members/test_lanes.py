"""Lanes: order by key with concurrency across keys, the watermark, back-pressure."""

import asyncio
import time
from collections import defaultdict

from hypothesis import example, given
from hypothesis import strategies as st

from echelon.model import Message
from tests.members.played_lanes import BOTH, FAR, PUTS, WINDOW, Played, message, run_of
from tests.members.waiting import play


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
        played = Played(waits=waits)
        played.fence()
        await played.lanes.put(run_of("abcdabcd"))
        putting = asyncio.ensure_future(played.lanes.put(run_of("ab", 9)))
        await asyncio.sleep(0.01)
        assert not putting.done()
        assert played.lanes.in_flight == WINDOW
        played.deadline = FAR
        await putting
        await played.until_idle()
        assert played.lanes.position == 11

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

"""Lanes: messages that fail are retried aside, become dead letters, or stop their key."""

import asyncio
from collections.abc import Awaitable

import pytest
from msgspec import structs

from echelon.errors import InvalidConfig, StreamNotFound, Unreachable
from echelon.model import Message
from tests.members.played_lanes import BOTH, FAR, RETRY, Played, message, run_of
from tests.members.waiting import play, until


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
        assert played.lanes.handled == 6
        assert not played.failures.parked

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
def test_a_message_whose_handler_others_have_cancelled_has_failed_and_none_of_its_key_overtakes_it(waits: bool) -> None:
    async def body() -> None:
        played = Played(waits=waits, width=1, failures={2: 2}, failure=asyncio.CancelledError)
        await played.lanes.put(run_of("aaaa"))
        await played.until_idle()
        await played.lanes.put(run_of("aa", 5))
        await played.until_idle()
        assert played.begun[b"a"] == [1, 2, 2, 2, 3, 4, 5, 6]
        assert played.done == [1, 2, 3, 4, 5, 6]
        assert played.lanes.handled == 6
        assert not played.broken

    play(body)


@BOTH
def test_a_handler_that_others_cancel_for_good_holds_the_position_and_says_so(waits: bool) -> None:
    async def body() -> None:
        played = Played(waits=waits, failures={2: 99}, failure=asyncio.CancelledError)
        await played.lanes.put(run_of("abcabc"))
        await until(lambda: played.failures.failure is not None)
        await until(lambda: not played.lanes.busy)
        assert "was cancelled, and not by its member" in str(played.failures.failure)
        assert played.lanes.position == 2

    play(body)


def test_a_parked_key_is_not_taken_up_by_lanes_that_have_not_come_to_it() -> None:
    played = Played()
    played.failures.parked["b"] = 3
    assert not played.lanes.unpark("b", 1)
    assert played.failures.parked == {"b": 3}
    assert played.lanes.unpark("b", 4)


@BOTH
def test_a_parked_message_that_is_not_begun_since_the_lanes_are_to_stop_has_not_failed(waits: bool) -> None:
    async def body() -> None:
        played = Played(waits=waits)
        played.lanes.stop(cancel=True)
        with pytest.raises(asyncio.CancelledError):
            await played.lanes.handle_again(message(2, "b"))
        assert not played.begun

    play(body)

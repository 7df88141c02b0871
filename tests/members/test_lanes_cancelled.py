"""What `join --count` relies on: the position that is told when a coroutine handler is cancelled."""

import asyncio

from tests.members.test_lanes import Played, message
from tests.members.waiting import play, until


def test_what_a_coroutine_handler_had_done_counts_when_it_is_cancelled_in_the_next_message() -> None:
    """They are handled in one slice, which the cancellation ends in its middle."""

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

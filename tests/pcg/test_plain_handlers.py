"""Plain functions as handlers in strict order: in a thread, quick or slow, without holding up the event loop."""

import asyncio
import threading
import time
from pathlib import Path

from echelon.local import NatsServer
from echelon.model import Message
from echelon.pcg import Member, Options
from tests.pcg.stage import staged


def test_quick_and_slow_calls_and_those_that_time_out_or_are_cancelled_come_in_order_and_the_event_loop_goes_on(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(2, "m"))
            await stage.publish(60, keys=1)
            calls: list[int] = []
            threads: set[int] = set()

            def handle(message: Message) -> None:
                number = int(message.data)
                calls.append(number)
                threads.add(threading.get_ident())
                if number == 5 and calls.count(5) == 1:
                    raise TimeoutError("the handler's own")
                if number == 7 and calls.count(7) == 1:
                    raise asyncio.CancelledError
                if number in (10, 11, 50):
                    time.sleep(1)

            member = Member(
                stage.groups, stage.stream, "g", "m", handle, options=Options(ack_wait=1, backoff=(0.01, 0.01))
            )
            running = asyncio.ensure_future(member.run())
            longest, before = 0.0, time.monotonic()
            while member.counters.messages < 60:
                await asyncio.sleep(0.005)
                longest, before = max(longest, time.monotonic() - before), time.monotonic()
            member.drain()
            await running
            assert calls == [*range(6), 5, 6, 7, *range(7, 60)]
            assert member.counters.retries == 2
            assert threading.get_ident() not in threads
            assert longest < 0.8, "a handler that takes a second held up the event loop"

    asyncio.run(run())

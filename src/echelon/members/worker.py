"""One partition at work: reads its messages, hands them to the lanes, and knows how far it is."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from echelon.brokers.base import Reader
from echelon.errors import EchelonError
from echelon.group.own import Run
from echelon.members.failures import Failures
from echelon.members.lanes import Lanes
from echelon.model import Message


class Worker:
    """Processes one partition for one run. All methods are called in the event loop's thread and do not block.

    `make_lanes` makes lanes from where the run stands; they call its argument when nothing runs any more.
    `announce` (at most once) waits until the group knows that everything before a position is about to be
    processed. `wake` is called when there is something to decide.
    """

    def __init__(
        self,
        reader: Reader,
        number: int,
        run: Run,
        failures: Failures,
        *,
        make_lanes: Callable[[Callable[[], None]], Lanes],
        announce: Callable[[Run, int], Awaitable[None]] | None,
        window: int,
        wake: Callable[[], None],
    ) -> None:
        self.run = run
        self._reader = reader
        self._number = number
        self._failures = failures
        self._make_lanes = make_lanes
        self._announce = announce
        self._window = window
        self._wake = wake
        self._lanes: Lanes | None = None
        self._reading: asyncio.Task[None] | None = None
        self._unreadable: EchelonError | None = None

    @property
    def failure(self) -> Exception | None:
        """Why the partition cannot go on: it cannot be read, or a message failed for good."""
        return self._unreadable or self._failures.failure

    @property
    def handled(self) -> int:
        """Messages handled since the run was last started."""
        return self._lanes.handled if self._lanes is not None else 0

    def start(self) -> None:
        """Take messages from where the run stands. What ran before has ended."""
        self._lanes = self._make_lanes(self._ended)
        self._reading = asyncio.ensure_future(self._read(self._lanes))
        self._reading.add_done_callback(lambda _: self._ended())

    def stop(self, *, cancel: bool) -> None:
        """Take no more messages. `cancel`: cancel what was begun; else let it end."""
        if self._reading is not None:
            self._reading.cancel()
        if self._lanes is not None:
            self._lanes.stop(cancel=cancel)
        self.update()

    def update(self) -> None:
        """Bring the run up to date with what was handled."""
        lanes, run = self._lanes, self.run
        if lanes is None:
            return
        reading = self._reading is not None and not self._reading.done()
        run.busy = lanes.busy or (reading and run.state != "running")
        run.in_flight = lanes.in_flight
        # At most once: what was announced is never processed again, however it ended.
        ended = self._announce is not None and run.state != "running" and not run.busy
        run.position = max(run.position, lanes.end if ended else lanes.position)

    def _ended(self) -> None:
        self.update()
        self._wake()

    async def _read(self, lanes: Lanes) -> None:
        try:
            async with aclosing(self._reader.tail(self._number, self.run.position)) as tail:
                async for messages in tail:
                    await self._hand_over(lanes, messages)
        except EchelonError as error:
            self._unreadable = error

    async def _hand_over(self, lanes: Lanes, messages: list[Message]) -> None:
        if self._announce is not None:
            await self._announce(self.run, messages[-1].sequence + 1)
        await lanes.put(messages, window=self._window)

"""A partition's messages in runs, one run after the other: for handlers of batches, and for transactions."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from echelon.members.clock import now
from echelon.members.failures import Failures
from echelon.members.options import Options
from echelon.members.transactions import Refused
from echelon.model import Message

Process = Callable[[Sequence[Message]], Awaitable[object]]
"""Processes a run of messages; what it raises is the failure of the run."""


class Batches:
    """The handling of one partition under one epoch, run by run. Everything here runs in the event loop's thread.

    A run that failed is taken apart, message by message, to find the one at fault. `deadline` is when this instance
    is fenced: nothing begins after it. `on_idle` is called when nothing runs any more.
    """

    def __init__(
        self,
        process: Process,
        position: int,
        *,
        options: Options,
        failures: Failures,
        deadline: Callable[[], int],
        on_idle: Callable[[], None],
    ) -> None:
        self._process = process
        self._size = options.batch_size
        self._window = options.buffer
        self._failures = failures
        self._deadline = deadline
        self._on_idle = on_idle
        self._queue: deque[Message] = deque()
        self._task: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._stopped = False
        self._under_way = 0
        self.position = position
        self.end = position
        self.handled = 0

    @property
    def in_flight(self) -> int:
        """How many messages were put and are not done."""
        return len(self._queue) + self._under_way

    @property
    def busy(self) -> bool:
        """Whether anything runs."""
        return self._task is not None

    async def put(self, messages: Sequence[Message]) -> None:
        """Take messages, in order; waits while the buffer is full."""
        while self.in_flight and self.in_flight + len(messages) > self._window and not self._stopped:
            self._room.clear()
            await self._room.wait()
        self._queue.extend(messages)
        self.end = messages[-1].sequence + 1
        if self._task is None and not self._stopped:
            self._task = asyncio.ensure_future(self._work())
            self._task.add_done_callback(self._ended)

    def stop(self, *, cancel: bool) -> None:
        """Begin no more runs. `cancel`: cancel the one under way."""
        self._stopped = True
        self._room.set()
        if cancel and self._task is not None:
            self._task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._under_way = 0
        self._on_idle()
        if not task.cancelled():
            task.result()

    async def _work(self) -> None:
        while self._queue and not self._stopped and now() < self._deadline():
            run = [self._queue.popleft() for _ in range(min(self._size, len(self._queue)))]
            self._under_way = len(run)
            try:
                passes = await self._settled(run)
            except Refused:
                passes = False
            if not passes:
                self.stop(cancel=False)
                return
            self.position = run[-1].sequence + 1
            self.handled += len(run)
            self._under_way = 0
            self._room.set()

    async def _settled(self, run: list[Message]) -> bool:
        """Process a run; whether the position may pass it."""
        failure = await self._attempt(run)
        if failure is None:
            return True
        if isinstance(failure, Refused):
            raise failure
        if len(run) > 1 and not self._failures.final:
            for message in run:
                if not await self._settled([message]):
                    return False
                self.position = message.sequence + 1
            return True
        attempts = 1
        while not self._stopped:
            verdict = await self._failures.settle(run[0], failure, attempts)
            if verdict != "retry":
                return verdict == "done"
            attempts += 1
            failure = await self._attempt(run)
            if failure is None:
                return True
        return False

    async def _attempt(self, run: list[Message]) -> Exception | None:
        try:
            await self._process(run)
        except Exception as error:  # noqa: BLE001 - whatever a user's handler raises is its failure, not ours
            return error
        return None

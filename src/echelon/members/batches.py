"""A partition's messages in runs, one run after the other: for handlers of batches, and for transactions."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from echelon.members.clock import now
from echelon.members.failures import Failures, Verdict
from echelon.members.handlers import is_cancelled, own_cancellation
from echelon.members.options import Options
from echelon.members.transactions import Refused
from echelon.model import Message

_LOOK: Final = 0.01
"""Seconds after which a fenced instance looks whether it still is."""

Process = Callable[[Sequence[Message]], Awaitable[object]]
"""Processes a run of messages; what it raises is the failure of the run."""


class _Stopped(Exception):
    """It was stopped before the run began."""


class Batches:
    """The handling of one partition under one epoch, run by run. Everything here runs in the event loop's thread.

    A run that failed is taken apart, message by message, to find the one at fault. `deadline` is when this instance
    is fenced: nothing begins after it; 0 if nothing may ever begin again, because the epoch is over. `on_idle` is
    called when nothing runs any more.
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
        self._closed = False
        self._stopped = False
        self._settling = False
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
        while self.in_flight and self.in_flight + len(messages) > self._window and not self._closed:
            self._room.clear()
            await self._room.wait()
        if self._closed:
            return
        self._queue.extend(messages)
        self.end = messages[-1].sequence + 1
        self._start()

    def stop(self, *, cancel: bool) -> None:
        """Take no more messages, and begin no more runs; `cancel` the one under way.

        (At most once, everything that was put is processed unless cancelled, for nobody will do so later.)
        """
        self._closed = True
        self._stopped = cancel or not self._failures.final
        self._room.set()
        if self._task is not None and (cancel or self._settling):
            self._task.cancel()

    def _start(self) -> None:
        if self._task is None and self._queue and not self._stopped:
            self._task = asyncio.ensure_future(self._work())
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._under_way = 0
        self._failures.ended(task)
        if self._failures.failure is not None:
            self._closed = self._stopped = True
        # Messages may have come after it had found none, and before it ended.
        self._start()
        if self._task is None:
            self._on_idle()

    async def _work(self) -> None:
        while self._queue and not self._stopped:
            run = [self._queue.popleft() for _ in range(min(self._size, len(self._queue)))]
            self._under_way = len(run)
            try:
                passes = await self._settled(run)
            except (Refused, _Stopped):
                passes = False
            if not passes:
                self._closed = self._stopped = True
                return
            self._under_way = 0
            self._room.set()

    async def _settled(self, run: list[Message]) -> bool:
        """Process a run, and let the position pass it; False if it may not. Raises Refused, _Stopped."""
        attempts = 1
        while (failure := await self._attempt(run)) is not None:
            if isinstance(failure, Refused):
                raise failure
            if len(run) > 1 and not self._failures.final:
                return await self._taken_apart(run)
            verdict = await self._settle(run[0], failure, attempts)
            if verdict == "done":
                break
            if verdict != "retry":
                return False
            attempts += 1
        self.position = run[-1].sequence + 1
        self.handled += len(run)
        return True

    async def _taken_apart(self, run: list[Message]) -> bool:
        for message in run:
            if not await self._settled([message]):
                return False
        return True

    async def _attempt(self, run: list[Message]) -> Exception | None:
        """Process a run as soon as this instance may, which is not while it is fenced; its failure."""
        while not self._stopped and now() >= (until := self._deadline()):
            if self._closed and not until:
                raise _Stopped  # The epoch is over: what is left is not this run's to process.
            await asyncio.sleep(_LOOK)
        if self._stopped:
            raise _Stopped
        try:
            await self._process(run)
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            return own_cancellation(error)
        except Exception as error:  # noqa: BLE001 - whatever a user's handler raises is its failure, not ours
            return error
        return None

    async def _settle(self, message: Message, failure: Exception, attempts: int) -> Verdict:
        """What becomes of a message that failed. Nothing runs meanwhile, so a stop need not wait for this."""
        if self._stopped and not self._failures.final:
            raise _Stopped
        self._settling = True
        try:
            return await self._failures.settle(message, failure, attempts)
        finally:
            self._settling = False

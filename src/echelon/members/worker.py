"""One partition at work: reads its messages, has them processed, and knows how far it is."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, Protocol

from echelon.errors import OutOfRange, Unreachable
from echelon.group.own import Run
from echelon.group.world import Called
from echelon.keys import key_name
from echelon.members.failures import Failures
from echelon.members.lanes import Lanes
from echelon.members.transactions import Refused, Transactor
from echelon.model import Message

logger = logging.getLogger(__name__)

_AGAIN: Final = 0.2
"""Seconds after which whoever did not answer is asked again."""


class Processing(Protocol):
    """What processes a partition's messages: `Lanes` or `Batches`."""

    @property
    def position(self) -> int:
        """Everything before it is done."""
        ...

    @property
    def end(self) -> int:
        """One past the newest message that was put."""
        ...

    @property
    def in_flight(self) -> int:
        """How many messages were put and are not done."""
        ...

    @property
    def busy(self) -> bool:
        """Whether anything runs."""
        ...

    @property
    def handled(self) -> int:
        """How many messages were handled."""
        ...

    async def put(self, messages: Sequence[Message]) -> None:
        """Take messages, in order; waits while the buffer is full."""
        ...

    def stop(self, *, cancel: bool) -> None:
        """Take no more messages. `cancel` what is under way; else end so that the position counts all that is done."""
        ...


class Worker:
    """Processes one partition for one run. All methods are called in the event loop's thread and do not block.

    `tail` gives the partition's messages from a position on, `read` those of a range. `process` makes what processes
    messages from a position on; it calls its second argument when nothing runs any more. `announce` (at most once)
    waits until the group knows that everything before a position is about to be processed; False: it will not, since
    the partition drains. `transactor` (exactly once) is opened first. `wake` is called when there is something to
    decide.
    """

    def __init__(
        self,
        tail: Callable[[int], AsyncGenerator[list[Message], None]],
        read: Callable[[int, int], AsyncGenerator[list[Message], None]],
        run: Run,
        failures: Failures,
        *,
        process: Callable[[int, Callable[[], None]], Processing],
        announce: Callable[[Run, int], Awaitable[bool]] | None,
        transactor: Transactor | None,
        wake: Callable[[], None],
    ) -> None:
        self.run = run
        self.handled = 0
        """Messages handled before it was last started."""
        self._tail = tail
        self._range = read
        self._answering: dict[str, asyncio.Task[None]] = {}
        self._failures = failures
        self._process = process
        self._announce = announce
        self._transactor = transactor
        self._wake = wake
        self._processing: Processing | None = None
        self._reading: asyncio.Task[None] | None = None
        self._stopping = False
        self._promised = False
        self._heeded = 0
        self._unreadable: Exception | None = None

    @property
    def failure(self) -> Exception | None:
        """Why the partition cannot go on: it cannot be read, or a message failed for good."""
        return self._unreadable or self._failures.failure

    def start(self, *, idle: bool) -> None:
        """Take messages from where the run, or its sink, stands. `idle`: only find out where that is."""
        self._processing = None
        self._stopping = False
        self._reading = asyncio.ensure_future(self._read(idle=idle))
        self._reading.add_done_callback(lambda _: self._ended())
        self.update()

    def answer(self, called: Mapping[str, Called]) -> None:
        """Try parked keys again, or pass over what is parked of them; each call once, however it ends."""
        for name, call in called.items():
            fresh = call.sequence > self._heeded and name not in self._answering
            if fresh and name in self._failures.parked and isinstance(self._processing, Lanes):
                task = asyncio.ensure_future(self._try_again(self._processing, name, skip=call.skip))
                self._answering[name] = task
                task.add_done_callback(partial(self._answered, name))
        self._heeded = max((call.sequence for call in called.values()), default=self._heeded)

    def _answered(self, name: str, task: asyncio.Task[None]) -> None:
        del self._answering[name]
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Unreachable):
            logger.warning("%s; trying again", error)
        elif isinstance(error, Exception):
            self._unreadable = error
        self._ended()

    async def _try_again(self, lanes: Lanes, name: str, *, skip: bool) -> None:
        begin = self._failures.parked[name]
        while not self._stopping:
            end = lanes.position
            if not skip:
                async with aclosing(self._range(begin, end)) as messages:
                    async for message in (message async for some in messages for message in some):
                        if key_name(message.key) == name and not await lanes.handle_again(message):
                            self._failures.parked[name] = message.sequence
                            return
            if lanes.unpark(name, end):
                return
            begin = end

    def stop(self, *, cancel: bool) -> None:
        """Take no more messages. `cancel`: cancel what was begun; else let it end.

        At most once: nobody will process later what was announced, so it is put first, unless cancelled.
        """
        self._stopping = True
        if cancel:
            for task in self._answering.values():
                task.cancel()
        sent = self.run.wanted <= self.run.advanced
        if cancel or not (self._promised and sent):
            if self._reading is not None:
                self._reading.cancel()
            if self._processing is not None:
                self._processing.stop(cancel=cancel)
        self.update()

    def update(self) -> None:
        """Bring the run up to date with what was handled."""
        run, processing = self.run, self._processing
        reading = self._reading is not None and not self._reading.done()
        run.refused = self._transactor is not None and self._transactor.refused
        # As long as it reads, handlers may begin at any moment: it has to be stopped before it can be forgotten.
        run.busy = reading or bool(self._answering) or (processing is not None and processing.busy)
        if processing is None:
            return
        run.in_flight = processing.in_flight
        # At most once: what was announced is never processed again, however it ended.
        over = self._announce is not None and run.state != "running" and not run.busy
        run.position = max(run.position, processing.end if over else processing.position)

    def count(self) -> int:
        """Messages handled since this was last asked."""
        total = self._processing.handled if self._processing is not None else 0
        fresh, self.handled = total - self.handled, total
        return fresh

    def _ended(self) -> None:
        self.update()
        self._wake()

    async def _read(self, *, idle: bool) -> None:
        run = self.run
        try:
            if self._transactor is not None:
                await self._open(self._transactor)
                run.position = self._transactor.position
                run.ready = True
            if idle:
                return
            self.handled = 0
            self._processing = self._process(run.position, self._ended)
            await self._take(self._processing, run.position)
        except Refused:
            self.update()
        except Exception as error:  # noqa: BLE001 - whatever it is, the partition must not wait in silence
            self._unreadable = error

    async def _open(self, transactor: Transactor) -> None:
        """Open the sink as soon as it answers. Raises Refused, NotReversible."""
        while True:
            try:
                await transactor.open()
            except Unreachable as error:
                await self._wait(error)
            else:
                return

    async def _take(self, processing: Processing, position: int) -> None:
        """Take messages as they come, from `position` on, whatever happens to the broker. Raises OutOfRange."""
        while True:
            try:
                async with aclosing(self._tail(position)) as tail:
                    async for messages in tail:
                        if self._announce is None:
                            await processing.put(messages)
                        elif not await self._put_announced(processing, messages, self._announce):
                            return
                        position = messages[-1].sequence + 1
            except OutOfRange as error:
                position = self._failures.go_on_at(error)
            except Unreachable as error:
                await self._wait(error)

    async def _put_announced(
        self, processing: Processing, messages: list[Message], announce: Callable[[Run, int], Awaitable[bool]]
    ) -> bool:
        """Announce messages and put them; whether more may be taken."""
        self._promised = True
        try:
            if await announce(self.run, messages[-1].sequence + 1):
                await processing.put(messages)
        finally:
            self._promised = False
        if self._stopping:
            processing.stop(cancel=False)
        return not self._stopping

    async def _wait(self, error: Unreachable) -> None:
        logger.warning("%s; trying again", error)
        await asyncio.sleep(_AGAIN)

"""One partition at work: reads its messages, has them processed, and knows how far it is."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Protocol

from echelon.errors import EchelonError, OutOfRange
from echelon.group.own import Run
from echelon.keys import key_name
from echelon.members.failures import Failures
from echelon.members.lanes import Lanes
from echelon.members.transactions import Refused, Transactor
from echelon.model import Message


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
        """Begin nothing more; `cancel` what is under way."""
        ...


class Worker:
    """Processes one partition for one run. All methods are called in the event loop's thread and do not block.

    `tail` gives the partition's messages from a position on, `read` those of a range. `process` makes what processes
    messages from a position on; it calls its second argument when nothing runs any more. `announce` (at most once)
    waits until the group knows that everything before a position is about to be processed. `transactor` (exactly
    once) is opened first. `wake` is called when there is something to decide.
    """

    def __init__(
        self,
        tail: Callable[[int], AsyncGenerator[list[Message], None]],
        read: Callable[[int, int], AsyncGenerator[list[Message], None]],
        run: Run,
        failures: Failures,
        *,
        process: Callable[[int, Callable[[], None]], Processing],
        announce: Callable[[Run, int], Awaitable[None]] | None,
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
        self._unreadable: EchelonError | None = None

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

    def answer(self, called: Mapping[str, bool]) -> None:
        """Try parked keys again, or pass over what is parked of them (True)."""
        for name, skip in called.items():
            if name in self._failures.parked and name not in self._answering and isinstance(self._processing, Lanes):
                task = asyncio.ensure_future(self._try_again(self._processing, name, skip=skip))
                self._answering[name] = task
                task.add_done_callback(partial(self._answered, name))

    def _answered(self, name: str, _task: asyncio.Task[None]) -> None:
        del self._answering[name]
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
        """Take no more messages. `cancel`: cancel what was begun; else let it end."""
        self._stopping = True
        if cancel:
            for task in self._answering.values():
                task.cancel()
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
        works = bool(self._answering) or (processing is not None and processing.busy)
        run.busy = works or (reading and run.state != "running")
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
                await self._transactor.open()
                run.position = self._transactor.position
            if idle:
                return
            self.handled = 0
            self._processing = self._process(run.position, self._ended)
            position = run.position
            while True:
                try:
                    position = await self._take(self._processing, position)
                except OutOfRange as error:
                    position = self._failures.go_on_at(error)
        except Refused:
            self.update()
        except EchelonError as error:
            self._unreadable = error

    async def _take(self, processing: Processing, position: int) -> int:
        """Take messages as they come; the position after the last, should there be no more."""
        async with aclosing(self._tail(position)) as tail:
            async for messages in tail:
                position = messages[-1].sequence + 1
                if self._announce is not None:
                    await self._announce(self.run, position)
                await processing.put(messages)
        return position

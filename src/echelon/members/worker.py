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
        self._tail = tail
        self._range = read
        self._failures = failures
        self._process = process
        self._announce = announce
        self._transactor = transactor
        self._wake = wake
        self._processing: Processing | None = None
        self._reading: asyncio.Task[None] | None = None
        self._stopping = False
        self._promised = False
        self._counted = 0
        """How many messages were counted since it was last started."""
        self._called: Mapping[str, Called] = {}
        self._answering: dict[str, asyncio.Task[None]] = {}
        self._answered: dict[str, int] = {}
        """Keys, each with the sequence of the last call that was answered."""
        self._unreadable: Exception | None = None

    @property
    def failure(self) -> Exception | None:
        """Why the partition cannot go on: it cannot be read, or a message failed for good."""
        return self._unreadable or self._failures.failure

    def start(self, *, idle: bool) -> None:
        """Take messages from where the run, or its sink, stands. `idle`: only find out where that is."""
        self._processing = None
        self._counted = 0
        self._stopping = False
        self._reading = asyncio.ensure_future(self._read(idle=idle))
        self._reading.add_done_callback(lambda _: self._ended())
        self.update()

    def answer(self, called: Mapping[str, Called]) -> None:
        """Try parked keys again, or pass over what is parked of them; each call once, however that ends.

        While it does not take messages it answers none: call this again with all that are not answered.
        """
        self._called = dict(called)
        self._answer()

    def _answer(self) -> None:
        lanes = self._processing
        if self._stopping or not isinstance(lanes, Lanes):
            return
        for name, call in self._called.items():
            parked = name in self._failures.parked and name not in self._answering
            if parked and call.sequence > self._answered.get(name, 0):
                task = asyncio.ensure_future(self._try_again(lanes, name, call))
                self._answering[name] = task
                task.add_done_callback(partial(self._end_answer, name))

    def _end_answer(self, name: str, task: asyncio.Task[None]) -> None:
        del self._answering[name]
        error = None if task.cancelled() else task.exception()
        if error is None:
            # A later call may have come meanwhile, which the world forgets if the key is parked further on now.
            self._answer()
        elif isinstance(error, Exception) and not isinstance(error, Unreachable):
            self._unreadable = error
        self._ended()

    async def _try_again(self, lanes: Lanes, name: str, call: Called) -> None:
        """Handle what is parked of a key, in order, or pass over it, and take the key up again.

        If it is to stop while more of the key is passed over, the call is not answered yet. Raises OutOfRange, and
        Unreachable if it is to stop.
        """
        begin = self._failures.parked[name]
        while not self._stopping:
            end = lanes.position
            failed = None if call.skip else await self._handle_parked(lanes, name, begin, end)
            if failed is not None:
                self._failures.parked[name] = failed
            if failed is not None or lanes.unpark(name, end):
                self._answered[name] = call.sequence
                return
            if end <= begin:  # The position waits for another key.
                await asyncio.sleep(_AGAIN)
            begin = max(begin, end)

    async def _handle_parked(self, lanes: Lanes, name: str, begin: int, end: int) -> int | None:
        """Handle what is parked of a key in a range, in order; the sequence of the message that failed, if one did."""
        async with aclosing(self._read_on(begin, end)) as parts:
            async for message in (message async for messages in parts for message in messages):
                if key_name(message.key) == name and not await lanes.handle_again(message):
                    return message.sequence
        return None

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
        fresh, self._counted = total - self._counted, total
        return fresh

    def _ended(self) -> None:
        self.update()
        self._wake()

    async def _read(self, *, idle: bool) -> None:
        run = self.run
        try:
            if self._transactor is not None:
                await self._transactor.open_at_last()
                run.position = self._transactor.position
                run.ready = True
            if idle:
                return
            self._processing = self._process(run.position, self._ended)
            await self._take(self._processing, run.position)
        except Refused:
            self.update()
        except Exception as error:  # noqa: BLE001 - whatever it is, the partition must not wait in silence
            self._unreadable = error

    async def _take(self, processing: Processing, position: int) -> None:
        """Take messages as they come, from `position` on. Raises OutOfRange."""
        async with aclosing(self._read_on(position)) as tail:
            async for messages in tail:
                if self._announce is None:
                    await processing.put(messages)
                elif not await self._put_announced(processing, messages, self._announce):
                    return

    async def _read_on(self, position: int, end: int | None = None) -> AsyncGenerator[list[Message], None]:
        """Messages from `position` on, before `end` or as they come, whatever happens to the broker.

        Raises OutOfRange unless the group goes on then, and Unreachable only if it is to stop.
        """
        while end is None or position < end:
            reading = self._tail(position) if end is None else self._range(position, end)
            try:
                async for messages in reading:
                    yield messages
                    position = messages[-1].sequence + 1
            except OutOfRange as error:
                position = self._failures.go_on_at(error)
            except Unreachable as error:
                if self._stopping:
                    raise
                logger.warning("%s; trying again", error)
                await asyncio.sleep(_AGAIN)
            else:
                return
            finally:
                await reading.aclose()

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

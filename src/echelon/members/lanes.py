"""Order by key inside a partition, with concurrency across keys.

Messages of one key are handled one after the other; keys share a few lanes, which run at the same time. The
position is the contiguous low watermark: everything before it is done. A key whose message failed waits apart,
with all that follows of it, while its lane goes on with other keys.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor

from echelon.keys import key_name
from echelon.members.clock import now
from echelon.members.failures import Failures, Verdict
from echelon.members.handlers import Call
from echelon.members.options import Options
from echelon.members.slices import SLICE, Slices
from echelon.model import Message


class Lanes:
    """The handling of one partition under one epoch. Everything but plain handlers runs in the event loop's thread.

    `failures` decides what becomes of a message that failed. The messages of parked keys are passed over; they are
    read again when their key is tried again. `deadline` is when this instance is fenced: no handler begins after it; 0
    if none may ever begin again, because the epoch is over. `on_idle` is called when nothing runs any more.
    """

    def __init__(
        self,
        call: Call,
        epoch: int,
        position: int,
        *,
        options: Options,
        failures: Failures,
        pool: Executor,
        deadline: Callable[[], int],
        on_idle: Callable[[], None],
    ) -> None:
        self._slices = Slices(call, epoch, pool=pool, deadline=deadline, on_cancelled=self._finish)
        self._width = options.lanes
        self._window = options.buffer
        self._failures = failures
        self._parked = failures.parked
        self._passed: dict[str, int] = {}
        self._deadline = deadline
        self._on_idle = on_idle
        self._next = position
        self._pending: dict[int, None] = {}
        self._lanes: list[deque[Message]] = [deque() for _ in range(options.lanes)]
        self._aside: dict[bytes | None, deque[Message]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._settling: set[asyncio.Task[None]] = set()
        self._running: set[int] = set()
        self._together = False
        self._begun = position - 1
        self._closed = False
        self._room = asyncio.Event()
        self.handled = 0

    @property
    def position(self) -> int:
        """Everything before it is done."""
        return next(iter(self._pending), self._next)

    @property
    def end(self) -> int:
        """One past the newest message that was put."""
        return self._next

    @property
    def in_flight(self) -> int:
        """How many messages were put and are not done."""
        return len(self._pending)

    @property
    def busy(self) -> bool:
        """Whether anything runs."""
        return bool(self._tasks)

    async def put(self, messages: Sequence[Message]) -> None:
        """Take messages, in order; waits while the buffer is full."""
        while self._pending and len(self._pending) + len(messages) > self._window and not self._closed:
            self._room.clear()
            await self._room.wait()
        if self._closed:
            return
        self._pending.update(dict.fromkeys([message.sequence for message in messages]))
        self._next = messages[-1].sequence + 1
        if not self._tasks:
            # One lane saves dealing them out.
            self._together = self._slices.are_quick(len(messages))
        if self._together:
            self._lanes[0].extend(messages)
            self._run(0)
        else:
            self._deal_out(messages)

    def _deal_out(self, messages: Sequence[Message]) -> None:
        lanes, width = self._lanes, self._width
        for message in messages:
            lanes[hash(message.key) % width].append(message)
        for index in range(width):
            self._run(index)

    def stop(self, *, cancel: bool) -> None:
        """Take no more messages. `cancel`: begin none, and cancel coroutines; plain handlers end by themselves.

        Else what was begun ends, and so does all that lies before it: nothing is done that the position does not
        count, unless a message fails meanwhile, which is not tried again here. (At most once everything that was put
        is handled, for nobody will do so later.)
        """
        self._closed = True
        self._room.set()
        if cancel:
            self._slices.stopped = True
        elif not self._failures.final:
            for waiting in (*self._lanes, *self._aside.values()):
                while waiting and waiting[-1].sequence > self._begun:
                    waiting.pop()
        for task in self._tasks if cancel else self._settling:
            task.cancel()

    def _run(self, index: int) -> None:
        if index not in self._running and self._lanes[index] and not self._slices.stopped:
            self._running.add(index)
            self._spawn(self._work(index))

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._failures.ended(task)
        if not self._tasks:
            self._on_idle()

    async def _work(self, index: int) -> None:
        lane = self._lanes[index]
        try:
            while lane and await self._may_begin():
                await self._work_slice(lane)
                if self._together and not self._slices.are_quick(len(lane)):
                    # Nothing of them runs just now, so that none can overtake another of its key.
                    self._together = False
                    rest = list(lane)
                    lane.clear()
                    self._deal_out(rest)
                if self._slices.waits:
                    await asyncio.sleep(0)
        finally:
            self._running.discard(index)

    async def _may_begin(self) -> bool:
        """Wait while this instance is fenced, which may be over before anybody else notices. False: it is to stop."""
        while not self._slices.stopped and now() >= (until := self._deadline()):
            if self._closed and not until:
                return False  # The epoch is over: what is left is not this run's to handle.
            await asyncio.sleep(SLICE)
        return not self._slices.stopped

    async def _work_slice(self, lane: deque[Message]) -> None:
        """Handle as many messages of a lane as fit into a slice of time."""
        messages = [lane.popleft() for _ in range(self._slices.fitting(len(lane)))]
        if self._aside or self._parked:
            messages = [message for message in messages if not self._set_aside(message)]
            if not messages:
                return
        self._begun = max(self._begun, messages[-1].sequence)
        done, failure = await self._slices.handle(messages)
        self._finish(messages[:done])
        rest = messages[done:]
        if failure is not None:
            failed = rest.pop(0)
            self._aside[failed.key] = deque()
            self._spawn(self._retry(failed, failure))
        lane.extendleft(reversed(rest))

    async def _handle_alone(self, message: Message) -> tuple[bool, Exception | None]:
        """Handle one message as soon as this instance may; (False, None) if it is to stop before."""
        done, failure = 0, None
        while not done and failure is None and await self._may_begin():
            done, failure = await self._slices.handle([message])
        return done == 1, failure

    def _finish(self, messages: Sequence[Message]) -> None:
        pending = self._pending
        for message in messages:
            del pending[message.sequence]
        self.handled += len(messages)
        self._room.set()

    def _set_aside(self, message: Message) -> bool:
        """Let a message wait behind an earlier one of its key that failed, or pass over it if its key is parked."""
        waiting = self._aside.get(message.key)
        if waiting is not None:
            waiting.append(message)
            return True
        name = key_name(message.key) if self._parked else ""
        if name not in self._parked:
            return False
        self._pass_over([message])
        return True

    def _pass_over(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._passed[key_name(message.key)] = message.sequence
        self._finish(messages)
        self.handled -= len(messages)

    async def handle_again(self, message: Message) -> bool:
        """Handle a parked message, apart from the lanes; whether it went well.

        Raises CancelledError if it was not begun, since this is to stop.
        """
        done, failure = await self._handle_alone(message)
        if not done and failure is None:
            raise asyncio.CancelledError
        self.handled += done
        return done

    def unpark(self, name: str, end: int) -> bool:
        """Take a key up again if all its messages that were passed over, here or before, lie before `end`."""
        if max(self._passed.get(name, -1), self._parked[name]) >= end:
            return False
        del self._parked[name]
        self._passed.pop(name, None)
        return True

    async def _retry(self, message: Message, failure: Exception) -> None:
        """Handle a message that failed, and then what came after it of its key, apart from the lane."""
        waiting = self._aside[message.key]
        problem: Exception | None = failure
        attempts = 1
        while True:
            verdict = "done" if problem is None else await self._settle(message, problem, attempts)
            if verdict == "stop":
                return
            if verdict == "park":
                self._parked[key_name(message.key)] = message.sequence
                self._pass_over([message, *waiting])
                del self._aside[message.key]
                return
            if verdict == "done":
                self._finish([message])
                if not waiting:
                    del self._aside[message.key]
                    return
                message, attempts = waiting.popleft(), 0
            done, problem = await self._handle_alone(message)
            if not done and problem is None:
                return
            attempts += 1

    async def _settle(self, message: Message, problem: Exception, attempts: int) -> Verdict:
        """What becomes of a message that failed. Nothing of it runs meanwhile, so a stop need not wait for this."""
        if self._closed and not self._failures.final:
            return "stop"
        task = asyncio.current_task()
        assert task is not None
        self._settling.add(task)
        try:
            return await self._failures.settle(message, problem, attempts)
        finally:
            self._settling.discard(task)

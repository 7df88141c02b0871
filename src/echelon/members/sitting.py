"""An instance at work: follows the group's log, decides, and does what was decided, whatever it works with."""

import asyncio
import contextlib
import logging
import os
import signal
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec

from echelon.brokers.base import Broker
from echelon.errors import BrokerError, GroupDeleted, GroupNotFound, LogBroken, Unreachable
from echelon.group.actions import Action, Close, Drain, Exit, GoOn, Halt, Send, Start
from echelon.group.advisories import Advisory, Watch
from echelon.group.decide import decide
from echelon.group.own import Own
from echelon.group.records import AnyRecord, Newer, Profile, Record, encode
from echelon.group.runs import drained
from echelon.group.world import World
from echelon.members.chores import Chores
from echelon.members.clock import now
from echelon.members.counters import Counters
from echelon.members.events import Event, Fenced, PartitionEnded, PartitionStarted
from echelon.members.follower import Follower
from echelon.members.neighbours import Neighbours
from echelon.members.workbench import Workbench
from echelon.model import Entry

logger = logging.getLogger(__name__)

_MOST_ROUNDS: Final = 8
"""How often decisions may follow from each other before the event loop gets its turn."""


class Sitting:
    """An instance of a group in this process. `run` it; `drain` or `stop` it from anywhere in the same event loop.

    `bench` makes what it works with, from its private side and a function that wakes it. `on_event` is called, in the
    event loop, when partitions come and go and for every advisory of the group; it must not block.
    """

    def __init__(
        self,
        broker: Broker,
        group: str,
        profile: Profile,
        bench: Callable[[Own, Callable[[], None]], Workbench],
        *,
        on_event: Callable[[Event], None] = lambda _: None,
    ) -> None:
        self.group = group
        self._broker = broker
        self._on_event = on_event
        self._own = Own(uuid.uuid4().hex, profile, began=now())
        self._neighbours = Neighbours(profile.machine, self._note_gone)
        self._woken = asyncio.Event()
        self._bench = bench(self._own, self._woken.set)
        self._tasks: set[asyncio.Task[None]] = set()
        self._exit: Exit | None = None
        self._was_fenced = True
        self._is_storing = True

    @property
    def id(self) -> str:
        """The instance's id, drawn when it was made."""
        return self._own.id

    @property
    def counters(self) -> Counters:
        """What this member has done since it was made."""
        return self._bench.counters

    @property
    def world(self) -> World:
        """The world as this member has read it. Read only."""
        return self._follower.world

    async def run(self, *, signals: bool = False) -> None:
        """Sit in the group until drained or stopped. `signals`: SIGTERM and SIGINT drain.

        Returns when all partitions are handed over. Raises GroupNotFound, GroupDeleted, LogBroken,
        UnknownVersion, InvalidConfig, OutOfRange; and what a handler raised, if the group stops at failures.
        """
        self._log = await self._broker.log(self.group)
        self._follower = Follower(self._log, on_entry=self._heard, on_void=self._void)
        await self._follower.open()
        config = self.world.config
        assert config is not None
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._neighbours.close)
            await stack.enter_async_context(self._bench.opened(config))
            self._begin()
            for number in (signal.SIGTERM, signal.SIGINT) if signals else ():
                asyncio.get_running_loop().add_signal_handler(number, self.drain)
                stack.callback(asyncio.get_running_loop().remove_signal_handler, number)
            await self._sit()
        self._raise_exit()

    def drain(self) -> None:
        """Finish what is in flight, hand everything over, and leave."""
        self._own.leaving = True
        self._woken.set()

    def stop(self) -> None:
        """Cancel what is in flight, hand everything over as it is, and leave."""
        for name, worker in self._bench.workers.items():
            self._own.turn(name, "halted", now())
            worker.stop(cancel=True)
        self.drain()

    async def _sit(self) -> None:
        following = asyncio.ensure_future(self._follower.run())
        following.add_done_callback(lambda _: self._woken.set())
        chores = Chores(
            self._broker, self._log, self.group, self._bench, self._own, world=lambda: self.world, send=self._send
        )
        minding = asyncio.ensure_future(chores.run())
        try:
            while self._exit is None:
                if minding.done():
                    minding.result()  # It ends only with a defect, which must not pass unseen.
                if following.done():
                    following.result()
                self._woken.clear()
                await self._step()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), self.world.interval / 8000)
        finally:
            tasks = (following, minding, *self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _raise_exit(self) -> None:
        match self._exit:
            case Exit(reason="deleted"):
                raise GroupDeleted(f"the group {self.group} was deleted")
            case Exit(reason="unread"):
                raise LogBroken(
                    f"what this process writes to the log of {self.group} is stored, but it cannot read it back",
                    remedy="See to its connection and to its permission to read the log",
                )

    def _begin(self) -> None:
        """Begin with a world that was read as a whole."""
        self._own.heard(self.world, self._follower.last, None, counted=False, now=now())
        self._watch = Watch(self.world)
        self._bench.heard(self.world)
        self._woken.set()

    def _void(self) -> None:
        for worker in self._bench.workers.values():
            worker.stop(cancel=True)
        self._own.start_over(now())
        self._begin()

    def _heard(self, entry: Entry, record: AnyRecord | Newer | None, counted: bool) -> None:  # noqa: FBT001 - a callback
        self._own.heard(self.world, entry, record, counted=counted, now=now())
        for advisory in self._watch.look(self.world):
            self._on_event(advisory)
            if self.world.chair() == self._own.id:
                self._spawn(self._publish(advisory))
        self._bench.heard(self.world)
        self._woken.set()

    def _note_gone(self, instance: str) -> None:
        self._own.gone.add(instance)
        self._woken.set()

    async def _step(self) -> None:
        """Decide and act until there is nothing more to do."""
        self._neighbours.look(self.world, self._own.id)
        for worker in self._bench.workers.values():
            worker.update()
            self.counters.messages += worker.count()
        if self._bench.failure is not None:
            await self._check_deleted()
            raise self._bench.failure
        self._note_fence()
        self._save_states()
        for _ in range(_MOST_ROUNDS):
            actions = decide(self.world, self._own, now())
            for action in actions:
                await self._act(action)
            if not actions or self._exit is not None:
                break
        self.counters.partitions = len(self._bench.workers)

    async def _check_deleted(self) -> None:
        """Raise GroupDeleted if the group is gone: whatever else failed follows from that."""
        deleted = bool(self.world.deleted)
        with contextlib.suppress(Unreachable):
            try:
                await self._log.bounds()
            except GroupNotFound:
                deleted = True
        if deleted:
            raise GroupDeleted(f"the group {self.group} was deleted")

    def _save_states(self) -> None:
        """Let the application save its state of what has drained for a cut."""
        cut = self.world.cut
        if cut is None:
            return
        for name, run in self._own.runs.items():
            if drained(run) and run.saved_for != cut.sequence:
                run.saved_for = cut.sequence
                run.state_at_cut = self._bench.save(name)

    def _note_fence(self) -> None:
        fenced = self._own.fenced(self.world.interval, now())
        if fenced and not self._was_fenced:
            self.counters.fenced += 1
            self._on_event(Fenced())
        self._was_fenced = fenced

    async def _act(self, action: Action) -> None:
        own, workers = self._own, self._bench.workers
        match action:
            case Send(record=record):
                self._send(record)
            case Start(partition=name, idle=idle):
                worker = await self._bench.start(self.world, name, idle=idle)
                state = self.world.saved_state(self.world.partitions[name])
                self._on_event(PartitionStarted(name, worker.run.epoch, worker.run.position, state))
            case Drain(partition=name):
                own.turn(name, "draining", now())
                workers[name].stop(cancel=False)
            case Halt(partition=name):
                own.turn(name, "halted", now())
                workers[name].stop(cancel=True)
            case GoOn(partition=name):
                own.turn(name, "running", now())
                workers[name].start(idle=False)
            case Close(partition=name):
                self._close(name)
            case Exit(reason="stuck"):
                logger.critical("a handler of %s does not end though it was cancelled: this process ends", self.group)
                os._exit(75)
            case Exit():
                self._exit = action

    def _close(self, name: str) -> None:
        run = self._own.runs.pop(name)
        if self._bench.forget(name):
            self.counters.note_drain((now() - run.since) / 1000)
            self._on_event(PartitionEnded(name, run.epoch))

    def _send(self, record: Record) -> None:
        self._spawn(self._append(encode(self._own.stamp(record, now()))))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _publish(self, advisory: Advisory) -> None:
        """Publish an advisory, as one instance does for the group; a second copy is recognised by its id."""
        subject = self._broker.advisories(self.group, advisory.kind)
        identity = f"{self.world.identity}-{advisory.id}"
        try:
            writer = await self._broker.writer()
            await writer.write(subject, msgspec.json.encode(advisory), key=advisory.kind.encode(), id=identity)
        except BrokerError as error:
            logger.warning("an advisory of %s was not published: %s", self.group, error)

    async def _append(self, data: bytes) -> None:
        try:
            await self._log.append(data)
        except BrokerError as error:
            if self._is_storing:  # Once for each outage, for records are written all the time.
                logger.warning("records to the log of %s are not stored: %s", self.group, error)
            self._is_storing = False
        else:
            if not self._is_storing:
                logger.warning("records to the log of %s are stored again", self.group)
            self._is_storing = True
            self._own.stored(self.world.interval, now())

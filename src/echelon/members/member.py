"""A process as a member: follows the group's log, decides, and does what was decided."""

import asyncio
import contextlib
import logging
import os
import signal
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from msgspec import Struct, structs

from echelon.brokers.base import Broker, Log, Reader
from echelon.errors import BrokerError, EchelonError, GroupDeleted, LogBroken
from echelon.group.actions import Action, Close, Drain, Exit, GoOn, Halt, Send, Start
from echelon.group.advisories import Watch
from echelon.group.decide import decide
from echelon.group.own import Own, Run
from echelon.group.records import AnyRecord, Newer, Profile, Record, encode
from echelon.group.world import World
from echelon.members.batches import Batches
from echelon.members.clock import now
from echelon.members.counters import Counters
from echelon.members.events import Event, Fenced, PartitionEnded, PartitionStarted
from echelon.members.failures import Failures
from echelon.members.follower import Follower
from echelon.members.handlers import Handler, understand
from echelon.members.lanes import Lanes
from echelon.members.machine import this_machine
from echelon.members.neighbours import Neighbours
from echelon.members.sinks.base import Sink
from echelon.members.transactions import Transactor
from echelon.members.worker import Processing, Worker
from echelon.model import Entry, Message

logger = logging.getLogger(__name__)

_MOST_ROUNDS: Final = 8
"""How often decisions may follow from each other before the event loop gets its turn."""


class Options(Struct, frozen=True):
    """How an instance works.

    `lanes` of a partition run side by side; at most `buffer` messages of a partition are in memory beside what the
    broker's client holds. With `batch` the handler takes a list of up to `batch_size` messages of one partition.
    `sink` makes it exactly once: the handler's second argument is then what the transaction writes to.
    """

    lanes: int = 16
    buffer: int = 5000
    batch: bool = False
    batch_size: int = 1000
    sink: Sink | None = None


class Member:
    """An instance of a group in this process. `run` it; `drain` or `stop` it from anywhere in the same event loop.

    The handler is called for every message of the partitions that the seat has, in order by key. `on_event` is
    called, in the event loop, when partitions come and go and for every advisory of the group; it must not block.
    `neighbours`: tell others where this process runs, so that those on the same machine see at once when it is gone,
    and look out for them.
    """

    def __init__(
        self,
        broker: Broker,
        group: str,
        handler: Handler,
        profile: Profile,
        *,
        options: Options | None = None,
        on_event: Callable[[Event], None] = lambda _: None,
        neighbours: bool = True,
    ) -> None:
        self.counters = Counters()
        self.group = group
        self._broker = broker
        self._call = understand(handler)
        self._options = options or Options()
        self._on_event = on_event
        self._machine = this_machine() if neighbours else None
        self._own = Own(uuid.uuid4().hex, structs.replace(profile, machine=self._machine), began=now())
        self._workers: dict[str, Worker] = {}
        self._readers: dict[str, Reader] = {}
        self._announced: dict[str, tuple[int, asyncio.Future[None]]] = {}
        self._woken = asyncio.Event()
        self._appends: set[asyncio.Task[None]] = set()
        self._exit: Exit | None = None

    @property
    def id(self) -> str:
        """The instance's id, drawn when it was made."""
        return self._own.id

    @property
    def world(self) -> World:
        """The world as this member has read it. Read only."""
        return self._follower.world

    async def run(self, *, signals: bool = False) -> None:
        """Sit in the group until drained or stopped. `signals`: SIGTERM and SIGINT drain.

        Returns when all partitions are handed over. Raises GroupNotFound, GroupDeleted, LogBroken,
        UnknownVersion, Denied; and what a handler raised, if the group stops at failures.
        """
        with contextlib.ExitStack() as stack:
            self._pool = stack.enter_context(ThreadPoolExecutor(self._options.lanes, "echelon-lane"))
            neighbours = Neighbours(self._machine, self._note_gone)
            stack.callback(neighbours.close)
            if signals:
                for number in (signal.SIGTERM, signal.SIGINT):
                    asyncio.get_running_loop().add_signal_handler(number, self.drain)
                    stack.callback(asyncio.get_running_loop().remove_signal_handler, number)
            self._log: Log = await self._broker.log(self.group)
            self._follower = Follower(self._log, on_entry=self._heard, on_void=self._void)
            await self._begin_reading()
            self._neighbours = neighbours
            await self._sit()
        self._raise_exit()

    async def _sit(self) -> None:
        following = asyncio.ensure_future(self._follower.run())
        following.add_done_callback(lambda _: self._woken.set())
        minding = asyncio.ensure_future(self._mind())
        try:
            while self._exit is None:
                if following.done():
                    following.result()
                self._woken.clear()
                await self._step()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), self.world.interval / 8000)
        finally:
            for worker in self._workers.values():
                worker.stop(cancel=True)
            for task in (following, minding, *self._appends):
                task.cancel()
            await asyncio.gather(following, minding, *self._appends, return_exceptions=True)

    def drain(self) -> None:
        """Finish what is in flight, hand everything over, and leave."""
        self._own.leaving = True
        self._woken.set()

    def stop(self) -> None:
        """Cancel what is in flight, hand everything over as it is, and leave."""
        for name, worker in self._workers.items():
            self._own.turn(name, "halted", now())
            worker.stop(cancel=True)
        self.drain()

    def _raise_exit(self) -> None:
        match self._exit:
            case Exit(reason="deleted"):
                raise GroupDeleted(f"the group {self.group} was deleted")
            case Exit(reason="unread"):
                raise LogBroken(
                    f"what this process writes to the log of {self.group} is stored, but it cannot read it back",
                    remedy="See to its connection and to its permission to read the log",
                )

    async def _begin_reading(self) -> None:
        await self._follower.open()
        self._note_start()

    def _note_start(self) -> None:
        self._own.heard(self.world, self._follower.last, None, counted=False, now=now())
        self._watch = Watch(self.world)
        self._woken.set()

    def _void(self) -> None:
        for worker in self._workers.values():
            worker.stop(cancel=True)
        self._own.start_over(now())
        self._note_start()

    def _heard(self, entry: Entry, record: AnyRecord | Newer | None, counted: bool) -> None:  # noqa: FBT001 - a callback
        self._own.heard(self.world, entry, record, counted=counted, now=now())
        for advisory in self._watch.look(self.world):
            self._on_event(advisory)
        for name, (wanted, future) in list(self._announced.items()):
            if self.world.partitions[name].position >= wanted and not future.done():
                future.set_result(None)
                del self._announced[name]
        self._woken.set()

    def _note_gone(self, instance: str) -> None:
        self._own.gone.add(instance)
        self._woken.set()

    async def _step(self) -> None:
        """Decide and act until there is nothing more to do."""
        self._neighbours.look(self.world, self._own.id)
        for worker in self._workers.values():
            worker.update()
            self.counters.messages += worker.count()
            if worker.failure is not None:
                raise worker.failure
        was_fenced = self._own.fenced(self.world.interval, now())
        for _ in range(_MOST_ROUNDS):
            actions = decide(self.world, self._own, now())
            for action in actions:
                await self._act(action)
            if not actions or self._exit is not None:
                break
        if was_fenced and any(run.state == "halted" for run in self._own.runs.values()):
            self._on_event(Fenced())
        self.counters.partitions = len(self._workers)

    async def _act(self, action: Action) -> None:
        match action:
            case Send(record=record):
                self._send(record)
            case Start(partition=name, idle=idle):
                await self._start(name, idle=idle)
            case Drain(partition=name):
                self._own.turn(name, "draining", now())
                self._workers[name].stop(cancel=False)
            case Halt(partition=name, cancel=cancel):
                self._own.turn(name, "halted", now())
                self._workers[name].stop(cancel=cancel)
            case GoOn(partition=name):
                self._own.turn(name, "running", now())
                self._workers[name].start(idle=False)
            case Close(partition=name):
                run = self._own.runs.pop(name)
                if self._workers.pop(name, None) is not None:
                    self._on_event(PartitionEnded(name, run.epoch))
            case Exit(reason="stuck"):
                logger.critical("a handler of %s does not end though it was cancelled: this process ends", self.group)
                os._exit(75)
            case Exit():
                self._exit = action

    def _send(self, record: Record) -> None:
        task = asyncio.ensure_future(self._append(encode(self._own.stamp(record, now()))))
        self._appends.add(task)
        task.add_done_callback(self._appends.discard)

    async def _append(self, data: bytes) -> None:
        try:
            await self._log.append(data)
        except BrokerError as error:
            logger.warning("a record to the log of %s was not stored: %s", self.group, error)
        else:
            self._own.stored(self.world.interval, now())

    async def _start(self, name: str, *, idle: bool) -> None:
        config = self.world.config
        assert config is not None
        stream, number = config.locate(name)
        if stream.name not in self._readers:
            self._readers[stream.name] = await self._broker.reader(self.group, stream)
        partition = self.world.partitions[name]
        run = self._own.start(partition, now(), idle=idle)
        failures = Failures(config, self.counters, self._bury)
        transactor = None
        if self._options.sink is not None:
            transactor = Transactor(self._options.sink, self.group, self.world, partition, self._call, self._pool)
        worker = Worker(
            self._readers[stream.name],
            number,
            run,
            failures,
            process=lambda position, idled: self._processing(run, failures, transactor, position, idled),
            announce=partial(self._announce, name) if config.delivery == "at_most_once" else None,
            transactor=transactor,
            window=self._options.buffer,
            wake=self._woken.set,
        )
        self._workers[name] = worker
        self._on_event(PartitionStarted(name, run.epoch, run.position))
        worker.start(idle=idle)

    def _processing(
        self, run: Run, failures: Failures, transactor: Transactor | None, position: int, idled: Callable[[], None]
    ) -> Processing:
        """What processes a partition's messages: lanes for single messages, runs for batches and transactions."""
        options = self._options
        process = transactor.process if transactor is not None else partial(self._handle_batch, run.epoch)
        if options.batch or transactor is not None:
            return Batches(
                process, position, size=options.batch_size, failures=failures, deadline=self._deadline, on_idle=idled
            )
        return Lanes(
            self._call,
            run.epoch,
            position,
            width=options.lanes,
            pool=self._pool,
            settle=failures.settle,
            deadline=self._deadline,
            on_idle=idled,
        )

    async def _handle_batch(self, epoch: int, messages: Sequence[Message]) -> None:
        if self._call.waits:
            await self._call.waiting(epoch)(messages)
        else:
            await asyncio.get_running_loop().run_in_executor(self._pool, self._call.plain(epoch), messages)

    def _deadline(self) -> int:
        """When this instance is fenced, by its own clock."""
        lease = self._own.lease
        return 0 if lease is None else lease + self.world.interval

    async def _announce(self, name: str, run: Run, end: int) -> None:
        """At most once: wait until the group has read that everything before `end` is about to be processed."""
        partition = self.world.partitions[name]
        if partition.position >= end and partition.epoch == run.epoch:
            return
        future = asyncio.get_running_loop().create_future()
        self._announced[name] = (end, future)
        run.wanted = end
        self._woken.set()
        await future

    async def _bury(self, message: Message, error: Exception, attempts: int) -> None:
        """Store a dead letter: the message as it was, with where it came from and why it failed."""
        writer = await self._broker.writer()
        headers = {
            "echelon-group": self.group,
            "echelon-partition": message.partition,
            "echelon-sequence": str(message.sequence),
            "echelon-subject": message.subject,
            "echelon-error": repr(error)[:1000],
            "echelon-attempts": str(attempts),
        }
        identity = f"{self.world.identity}-{message.partition}-{message.sequence}"
        subject = f"echelon.dead.{self.group}"
        await writer.write(subject, message.data, key=message.key, headers=headers, id=identity)

    async def _mind(self) -> None:
        """Now and then: how much waits, and what the broker's own tools should know."""
        told: dict[str, int] = {}
        while True:
            await asyncio.sleep(max(1.0, self.world.interval / 2000))
            try:
                await self._look_at_backlog()
                await self._tell_broker(told)
            except EchelonError as error:
                logger.warning("the backlog of %s is not known: %s", self.group, error)

    async def _look_at_backlog(self) -> None:
        config = self.world.config
        assert config is not None
        for name, worker in list(self._workers.items()):
            stream, number = config.locate(name)
            worker.run.pending = await self._readers[stream.name].lag(number, worker.run.position)
        self.counters.lag = {name: worker.run.pending for name, worker in self._workers.items()}

    async def _tell_broker(self, told: dict[str, int]) -> None:
        config = self.world.config
        assert config is not None
        mine = {p.name: p.position for p in self.world.owned(self._own.id) if told.get(p.name) != p.position}
        for stream in config.streams:
            positions = {config.locate(name)[1]: at for name, at in mine.items() if config.locate(name)[0] == stream}
            if positions:
                await self._broker.commit(self.group, stream, positions)
        told.update(mine)

"""The partitions that an instance works on: readers, workers, and what processes their messages."""

from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, nullcontext
from functools import partial

from echelon.brokers.base import Broker, StreamInfo
from echelon.group.config import Config, Stream
from echelon.group.own import Own, Run
from echelon.group.world import World
from echelon.members.announcements import Announcements
from echelon.members.batches import Batches
from echelon.members.clock import now
from echelon.members.counters import Counters
from echelon.members.dead_letter import DeadLetter
from echelon.members.failures import Failures
from echelon.members.handlers import Call, check_plain, check_result, in_thread
from echelon.members.lanes import Lanes
from echelon.members.options import Options, check_options
from echelon.members.readers import Readers
from echelon.members.transactions import Transactor
from echelon.members.worker import Processing, Worker
from echelon.model import Message


class Desk:
    """Has a worker for every partition that runs. Used in the event loop's thread only; nothing here blocks.

    `wake` is called when there is something to decide.
    """

    def __init__(
        self, broker: Broker, group: str, call: Call, options: Options, own: Own, wake: Callable[[], None]
    ) -> None:
        self.counters = Counters()
        self.workers: dict[str, Worker] = {}
        self._broker = broker
        self._group = group
        self._call = call
        self._options = options
        self._own = own
        self._wake = wake
        self._pool = ThreadPoolExecutor(options.lanes, "echelon-lane")
        self._readers = Readers(broker, group)
        self._announcements = Announcements(own, wake)
        self._world = World()

    @property
    def failure(self) -> Exception | None:
        """Why a partition cannot go on, if one cannot."""
        return next((worker.failure for worker in self.workers.values() if worker.failure is not None), None)

    @asynccontextmanager
    async def opened(self, config: Config) -> AsyncGenerator[None]:
        """Check the options against the group, and open the sink. Raises InvalidConfig and what the sink raises.

        Leaving it stops everything; threads end when the handlers that they run end.
        """
        check_options(self._options, config, self._call, self._group)
        async with self._options.sink or nullcontext():
            try:
                yield
            finally:
                for worker in self.workers.values():
                    worker.stop(cancel=True)
                self._pool.shutdown(wait=False, cancel_futures=True)

    def forget(self, name: str) -> bool:
        """Nothing of the partition runs any more. Returns whether it was worked on."""
        return self.workers.pop(name, None) is not None

    def save(self, name: str) -> bytes | None:
        """What the application wants to keep of a partition that has drained for a cut. Raises InvalidConfig."""
        if self._options.save is None:
            return None
        saved = self._options.save(name)
        check_plain("save", saved)
        return saved

    async def info(self, stream: Stream) -> StreamInfo:
        """What a stream holds now."""
        assert self._world.config is not None
        return await self._readers.info(self._world.config, stream)

    async def start(self, world: World, name: str, *, idle: bool) -> Worker:
        """Start a partition where the world has it."""
        config = world.config
        assert config is not None
        self._world = world
        partition = world.partitions[name]
        run = self._own.start(partition, now(), idle=idle, ready=self._options.sink is None)
        failures = Failures(config, self.counters, self._bury, partition.parked)
        run.parked = failures.parked
        sink = self._options.sink
        transactor = Transactor(sink, self._group, world, partition, self._call, self._pool) if sink else None
        worker = Worker(
            partial(self._tail, config, name),
            partial(self._read, config, name),
            run,
            failures,
            process=partial(self._processing, name, run, failures, transactor),
            announce=partial(self._announce, name) if config.delivery == "at_most_once" else None,
            transactor=transactor,
            wake=self._wake,
        )
        self.workers[name] = worker
        worker.start(idle=idle)
        return worker

    async def _tail(self, config: Config, name: str, start: int) -> AsyncGenerator[list[Message], None]:
        reader, number = await self._readers.of_partition(config, name)
        async with aclosing(reader.tail(number, start)) as parts:
            async for messages in parts:
                if messages:
                    yield messages

    async def _read(self, config: Config, name: str, start: int, end: int) -> AsyncGenerator[list[Message], None]:
        reader, number = await self._readers.of_partition(config, name)
        async with aclosing(reader.read(number, start, end)) as parts:
            async for messages in parts:
                if messages:
                    yield messages

    def _processing(
        self,
        name: str,
        run: Run,
        failures: Failures,
        transactor: Transactor | None,
        position: int,
        idled: Callable[[], None],
    ) -> Processing:
        """What processes a partition's messages: lanes for single messages, runs for batches and transactions."""
        options = self._options
        deadline = partial(self._deadline, name, run)
        if options.batch or transactor is not None:
            process = partial(self._handle_batch, run.epoch) if transactor is None else transactor.process
            return Batches(process, position, options=options, failures=failures, deadline=deadline, on_idle=idled)
        return Lanes(
            self._call,
            run.epoch,
            position,
            options=options,
            failures=failures,
            pool=self._pool,
            deadline=deadline,
            on_idle=idled,
        )

    async def _handle_batch(self, epoch: int, messages: Sequence[Message]) -> None:
        if self._call.waits:
            await self._call.under(epoch)(messages)
        else:
            check_result(await in_thread(self._pool, self._call.under(epoch), messages))

    def _deadline(self, name: str, run: Run) -> int:
        """Until when messages of a run may be begun, by this instance's own clock: until it is fenced.

        0, which is not at all, once the partition has another owner or epoch. Who slept reads that before it reads its
        own records again, which end the fence; so nothing of the run begins in between, before anything was decided.
        """
        partition = self._world.partitions.get(name)
        lease = self._own.lease
        if lease is None or partition is None or (partition.owner, partition.epoch) != (self._own.id, run.epoch):
            return 0
        return lease + self._world.interval

    async def _announce(self, name: str, run: Run, end: int) -> bool:
        return await self._announcements.make(name, run, end, self._world)

    def heard(self, world: World) -> None:
        """Something was read: batches that were announced may begin."""
        self._world = world
        self._announcements.heard(world, self.workers)
        for name, worker in self.workers.items():
            partition = world.partitions.get(name)
            if partition is not None and partition.called and partition.epoch == worker.run.epoch:
                worker.answer(partition.called)

    async def _bury(self, message: Message, error: Exception, attempts: int) -> None:
        """Store the message as a dead letter."""
        identity = f"{self._world.identity}-{message.partition}-{message.sequence}"
        subject, writer = self._broker.dead_letters(self._group), await self._broker.writer()
        await DeadLetter(self._group, message, error, attempts).write(writer, subject, identity)

    async def look_at_backlog(self) -> None:
        """Ask how much waits in each partition that is worked on."""
        for name, worker in list(self.workers.items()):
            assert self._world.config is not None
            reader, number = await self._readers.of_partition(self._world.config, name)
            worker.run.pending = await reader.lag(number, worker.run.position)
        self.counters.lag = {name: worker.run.pending for name, worker in self.workers.items()}

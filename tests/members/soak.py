"""Real processes under one fault after the other, for as long as asked: brokers, guarantees, sinks, faults.

Run as `python -m tests.members.soak --minutes 30`. Each round is a group of its own; it says what it did, and the first
round that breaks its guarantee ends it all. `--seed` chooses the same rounds again; their timing is never the same.
"""

import argparse
import asyncio
import logging
import random
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from echelon.errors import Unreachable, WrongState
from echelon.group.config import Delivery
from echelon.local import KafkaServer, NatsServer, Server
from tests.brokers.harnesses import KafkaHarness
from tests.brokers.nats.harness import NatsHarness
from tests.members.process import Results
from tests.members.results import check_results, until_more_results
from tests.members.sinks.harnesses import KINDS, SinkHarness, make_harness
from tests.members.stage import PatientStage, Stage
from tests.postgres_server import PostgresServer

logger = logging.getLogger("soak")

INTERVAL: Final = 0.5
FAULTS_A_ROUND: Final = 6


class Round(Struct, frozen=True):
    """What a round is about. `way`: what the handler is like; for exactly once, the kind of sink."""

    broker: str
    delivery: Delivery
    way: str


WAYS: Final[dict[Delivery, tuple[str, ...]]] = {
    "at_least_once": ("plain", "async", "batch"),
    # A batch is one call, which a suspended process finishes when it wakes: nothing twice, but late.
    "at_most_once": ("plain", "async"),
    "exactly_once": tuple(KINDS),
}
ROUNDS: Final = [
    Round(broker, delivery, way) for broker in ("nats", "kafka") for delivery, ways in WAYS.items() for way in ways
]


class Play:
    """One round."""

    def __init__(self, stage: Stage, about: Round, harness: SinkHarness | None, chance: random.Random) -> None:
        self.stage = stage
        self.about = about
        self.harness = harness
        self.chance = chance
        self._launched = 0

    async def launch(self) -> None:
        """Start another process, for any seat, and wait until it has joined: who finds no broker at first ends."""
        self._launched += 1
        results = Results(self.harness.kind, self.harness.address, self.harness.name) if self.harness else None
        waits, batch = self.about.way == "async", self.about.way == "batch"
        name = f"p{self._launched}"
        self.stage.launch(name, results=results, slow=0.002, waits=waits, batch=batch)
        await self.stage.until_joined(name)

    def anybody(self) -> str:
        """One of the processes that run and have joined."""
        joined = {instance.profile.name for instance in self.stage.world.instances.values()}
        return self.chance.choice([name for name in self.stage.alive() if name in joined])

    async def until_progress(self) -> None:
        """Wait until messages are handled again."""
        async with asyncio.timeout(90):
            if self.harness is not None:
                await until_more_results(self.harness, 20)
            else:
                await self.stage.until_more(20)

    async def run(self) -> None:
        """Fault after fault under load, and then every message is checked."""
        stage = self.stage
        await stage.prepare(members=("a", "b"), interval=INTERVAL, delivery=self.about.delivery)
        for _ in range(4):
            await self.launch()
        async with stage.load():
            await self.until_progress()
            for _ in range(FAULTS_A_ROUND):
                fault = self.chance.choice(FAULTS)
                logger.info("  %s", fault.__name__)
                # That a seat is vacant or a cut aborted, when somebody asks for something, is no fault.
                with suppress(WrongState, Unreachable):
                    await fault(self)
                await self.until_progress()
        await self._check()

    async def _check(self) -> None:
        stage = self.stage
        if self.harness is not None:
            async with asyncio.timeout(90):
                await check_results(stage, self.harness)
            return stage.check_quiet()
        if self.about.delivery == "at_most_once":
            await stage.publish(40)
            last = {sent[-1] for sent in stage.sent.values()}
            await stage.until(lambda lines: {line.data for line in lines} >= last, 90)
            return stage.check("at_most_once")
        await stage.until_all_handled(90)
        return stage.check("at_least_once")


async def kill(play: Play) -> None:
    """SIGKILL."""
    play.stage.kill(play.anybody())
    await play.launch()


async def suspend(play: Play) -> None:
    """SIGSTOP for longer than the lease, and SIGCONT."""
    await play.stage.suspend(play.anybody(), play.chance.uniform(0.5, 4) * INTERVAL)


async def drain(play: Play) -> None:
    """SIGTERM."""
    await play.launch()
    await play.stage.drain(play.anybody())


async def restart(play: Play) -> None:
    """The broker goes away for a while."""
    await play.stage.harness.stop()
    await asyncio.sleep(play.chance.uniform(0, 4) * INTERVAL)
    await play.stage.harness.start()


async def change_members(play: Play) -> None:
    """Seats are added and removed."""
    await play.stage.admin.set_members(play.chance.choice([["a"], ["a", "b"], ["b", "c"], ["a", "b", "c"]]))


async def step_down(play: Play) -> None:
    """A seat is given up by order."""
    await play.stage.admin.step_down(play.chance.choice(sorted(play.stage.world.seats)))


async def pause(play: Play) -> None:
    """The group is paused for a while."""
    await play.stage.admin.pause(until=play.stage.world.broker_time + 1000)


async def cut(play: Play) -> None:
    """A cut is taken."""
    await play.stage.admin.cut(seconds=20)


FAULTS: Final[list[Callable[[Play], Awaitable[None]]]] = [
    kill,
    suspend,
    drain,
    restart,
    change_members,
    step_down,
    pause,
    cut,
]


class Ground:
    """The servers that all rounds share."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.nats = NatsServer(folder / "nats")
        self.kafka = KafkaServer(folder / "kafka")
        self.postgres = PostgresServer(folder / "postgres")
        for server in (self.nats, self.kafka, self.postgres):
            stack.callback(server.kill if isinstance(server, Server) else server.stop)
            server.start()

    def stage(self, broker: str, folder: Path) -> Stage:
        """A stage for a new group."""
        group = f"g{uuid.uuid4().hex[:8]}"
        if broker == "nats":
            return PatientStage(NatsHarness(self.nats, "derived"), self.nats.url, folder, group)
        return Stage(KafkaHarness(self.kafka), self.kafka.url, folder, group)

    def address(self, kind: str, folder: Path) -> str:
        """Where results of this kind go."""
        places = {"sqlite": str(folder / "results.db"), "postgres": self.postgres.conninfo, "kafka": self.kafka.url}
        return places.get(kind, self.nats.url)


async def play_round(ground: Ground, about: Round, folder: Path, chance: random.Random) -> None:
    """One round from beginning to end. Raises AssertionError or TimeoutError if it broke its guarantee."""
    harness: SinkHarness | None = None
    if about.delivery == "exactly_once":
        harness = make_harness(about.way, ground.address(about.way, folder), f"r{uuid.uuid4().hex[:12]}")
        await harness.prepare()
    async with ground.stage(about.broker, folder) as stage:
        try:
            await Play(stage, about, harness, chance).run()
        except (AssertionError, TimeoutError):
            logger.exception("%s", stage.report())
            raise


def main() -> None:
    """Play rounds until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--only", default="", help="only rounds with this broker, guarantee or sink")
    arguments = parser.parse_args()
    rounds = [about for about in ROUNDS if arguments.only in ("", about.broker, about.delivery, about.way)]
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stdout)
    logger.setLevel(logging.INFO)
    logger.info("seed %d", arguments.seed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))  # Else its servers would stay.
    chance = random.Random(arguments.seed)
    end = time.monotonic() + 60 * arguments.minutes
    # PostgreSQL does not run as root, and must be able to see its folder.
    with tempfile.TemporaryDirectory(prefix="echelon-soak-") as folder, ExitStack() as stack:
        Path(folder).chmod(0o755)
        ground = Ground(Path(folder), stack)
        count = 0
        while time.monotonic() < end:
            for about in chance.sample(rounds, len(rounds)):
                if time.monotonic() >= end:
                    break
                place = Path(folder) / f"round{count}"
                place.mkdir()
                logger.info("%s, %s, %s", about.broker, about.delivery, about.way)
                asyncio.run(play_round(ground, about, place, chance))
                count += 1
        logger.info("%d rounds, and every guarantee held", count)


if __name__ == "__main__":
    main()

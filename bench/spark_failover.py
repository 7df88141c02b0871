"""From the crash of a Spark application to the next committed batch: a hot stand-by beside a cold restart."""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from echelon.brokers.base import Broker
from echelon.brokers.connect import open_broker
from echelon.demo import sensors
from echelon.group.config import Stream
from echelon.group.world import World
from echelon.keys import TokensKey
from echelon.local import NatsServer
from echelon.members.admin import Admin, create_group
from report import Row, main, row

ROUNDS = 3
PIPELINE = """\
from echelon.spark import SparkOutput, pipeline

@pipeline(group="g", stream="SENSORS", key="tokens:sensor.*.*:1", partitions=12, delivery="at_least_once",
          sink=SparkOutput("noop"), checkpoint={checkpoint!r})
def same(frame):
    return frame
"""


class Trial:
    """A group with one seat, and the applications that want it."""

    def __init__(self, url: str, folder: Path, admin: Admin) -> None:
        self._url = url
        self._file = folder / "same.py"
        self._file.write_text(PIPELINE.format(checkpoint=str(folder / "checkpoints")))
        self._admin = admin
        self._count = 0
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def launch(self) -> str:
        """Start an application; its name."""
        self._count += 1
        name = f"a{self._count}"
        command = [sys.executable, "-m", "echelon.cli", "--broker", self._url, "run", str(self._file)]
        self.processes[name] = subprocess.Popen(
            [*command, "--member", "m1", "--name", name], stderr=subprocess.DEVNULL, env=os.environ
        )
        return name

    async def until_joined(self, name: str) -> None:
        """Wait until an application has joined: its session is warm then."""
        await self._admin.until(
            lambda world: any(i.profile.name == name for i in world.instances.values()), seconds=120
        )

    async def until_works(self, name: str) -> None:
        """Wait until an application has committed a batch."""

        def works(world: World) -> bool:
            holder = world.holder("m1")
            begun = any(partition.reported for partition in world.partitions.values())
            return begun and holder is not None and holder.profile.name == name

        await self._admin.until(works, seconds=120)

    async def crash(self, active: str, *, hot: bool) -> tuple[float, str]:
        """Kill the active application; how long it takes until the next one has committed a batch, and its name."""
        after = next(name for name in self.processes if name != active) if hot else ""
        began = time.monotonic()
        self.processes.pop(active).kill()
        after = after or self.launch()
        await self.until_works(after)
        return time.monotonic() - began, after


async def measure_trial(url: str, folder: Path, broker: Broker) -> list[Row]:
    """Crash after crash, under a load of 500 messages a second."""
    stream = Stream(sensors.STREAM, 12, TokensKey("sensor.*.*", (1,)), "derived")
    await sensors.make_stream(url)
    await create_group(broker, "g", [stream], start="earliest", interval=0.5, members=("m1",))
    writing = asyncio.ensure_future(sensors.write_readings(url, 1_000_000, 500))
    hot: list[float] = []
    cold: list[float] = []
    async with Admin(await broker.log("g"), "g") as admin:
        trial = Trial(url, folder, admin)
        try:
            active = trial.launch()
            await trial.until_works(active)
            for _ in range(ROUNDS):
                await trial.until_joined(trial.launch())
                seconds, active = await trial.crash(active, hot=True)
                hot.append(seconds)
            for _ in range(ROUNDS):
                seconds, active = await trial.crash(active, hot=False)
                cold.append(seconds)
        finally:
            for process in trial.processes.values():
                process.kill()
                process.wait()
            writing.cancel()
    return [
        row(
            "Spark failover, hot stand-by",
            statistics.median(hot),
            "s",
            peer_name="cold restart",
            peer=statistics.median(cold),
            target=2,
            less_is_better=True,
        )
    ]


def run() -> list[Row]:
    """The row."""
    with tempfile.TemporaryDirectory() as folder, NatsServer(Path(folder) / "nats") as server:

        async def measured() -> list[Row]:
            async with open_broker(server.url) as broker:
                return await measure_trial(server.url, Path(folder), broker)

        return asyncio.run(measured())


if __name__ == "__main__":
    main(run)

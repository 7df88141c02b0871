"""JetStream-native groups beside the Go reference, and Echelon's own groups beside both.

One server, messages of 150 bytes on 120 subjects in 12 partitions, one member, strict order: one message at a time. The
groups are written by Echelon in the reference's format, so that consumers have the same settings in both languages: one
ack pending, and 6 s of ack wait and of pin, the least that the reference takes. Echelon's own groups have their default
interval of 3 s, after two of which a silent instance is replaced. `apart`: as if its processes were on two machines,
where nobody can see that one is gone.

Failing over is measured twice. Under load a message is always under way, and who takes over waits until that one's ack
wait is over. Where messages are rare none is, and who takes over waits until the pin's timeout is over since the last
request of the process that was killed: then it matters how often an instance asks.
"""

import asyncio
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from pathlib import Path

import msgspec
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from echelon.brokers.connect import open_broker
from echelon.group.config import Stream
from echelon.keys import TokensKey
from echelon.local import NatsServer
from echelon.members.admin import create_group
from echelon.pcg import StaticConfig, open_groups
from pcg_member import SECONDS as HANDLING_SECONDS
from report import Row, main, row

FOLDER = Path(__file__).parent
MODULE = "github.com/synadia-io/orbit.go/pcgroups"
VERSION = "v0.1.0"
SUBJECTS = 120
PARTITIONS = 12
DATA = b"x" * 150
MESSAGES = 15_000
RATE_ROUNDS = 5
SETTLE_SECONDS = 7.0  # in which a stand-by has long been one, in every kind of group
ACK_WAIT = 6.0
ASK_SECONDS = ACK_WAIT / 2  # in which every instance asks again at the latest, in either language
SLICE_SECONDS = 0.004  # that a process may have a processor before another one gets it
NO_TARGET = 0.0  # of rows that only tell


class Load(msgspec.Struct, frozen=True):
    """Messages while processes are killed: so many a second. In each round some pairs of each kind run side by side."""

    rate: float
    kinds: tuple[str, ...]
    rounds: int
    pairs: int
    expected: float
    """Seconds that failing over takes by the server's timers alone."""

    def not_slower(self) -> float:
        """The least ratio of two times that differ by no more than noise.

        The process may be killed at the beginning of a message or at its end; and who is to handle the next one may
        have to wait until every other process of the round has had its turn.
        """
        processes = 2 * self.pairs * (len(self.kinds) + 1)
        return self.expected / (self.expected + HANDLING_SECONDS + processes * SLICE_SECONDS)


# Twice what a process can handle: a message is always under way.
LOADED = Load(rate=200, kinds=("coroutine", "own", "apart"), rounds=3, pairs=2, expected=ACK_WAIT)
# Hardly ever is one under way. A kill finds the last request half as old, in the middle, as it can be.
RARE = Load(rate=1, kinds=("coroutine",), rounds=1, pairs=6, expected=ACK_WAIT - ASK_SECONDS / 2)


class Peer:
    """The reference. `program` is an instance of it; None if it cannot be built, which `name` says then."""

    def __init__(self, folder: Path) -> None:
        self.program: Path | None = folder / "peer"
        self.name = f"Go reference {VERSION}"
        if shutil.which("go") is None:
            self._is_missing("there is no Go")
            return
        shutil.copy(FOLDER / "pcg_peer.go", folder)
        (folder / "go.mod").write_text(f"module peer\n\ngo 1.23.7\n\nrequire {MODULE} {VERSION}\n")
        for command in (["go", "mod", "tidy"], ["go", "build", "-o", "peer", "."]):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                print(done.stderr, file=sys.stderr)
                self._is_missing("cannot be built")
                return

    def _is_missing(self, why: str) -> None:
        self.program = None
        self.name = f"{self.name}: {why}"


class Bench:
    """A server, and processes that are instances on it."""

    def __init__(self, server: NatsServer, folder: Path, peer: Peer) -> None:
        self.url = server.url
        self.folder = folder
        self.peer = peer

    def command(self, kind: str, stream: str, group: str, count: int) -> list[str]:
        """What starts an instance, in Go or in Python."""
        if kind == "go":
            return [str(self.peer.program), self.url, stream, group, "m", str(count)]
        return [sys.executable, str(FOLDER / "pcg_member.py"), kind, self.url, stream, group, str(count)]

    def kinds(self, *ours: str) -> list[str]:
        """These kinds, and Go if it is there."""
        return [*(["go"] if self.peer.program else []), *ours]

    async def make_group(self, kind: str, stream: str) -> str:
        """A group with one member, that begins with the first message."""
        group = f"g{uuid.uuid4().hex[:8]}"
        if kind in ("own", "apart"):
            async with open_broker(self.url) as broker:
                source = Stream(stream, PARTITIONS, TokensKey(f"{stream}.*", (1,)), "token")
                await create_group(broker, group, [source], start="earliest", members=("m",))
        else:
            config = StaticConfig(max_members=PARTITIONS, filters=(">",), members=("m",), format="v0.1")
            async with open_groups(self.url) as groups:
                await groups.create(stream, group, config)
        return group

    async def make_stream(self, client: Client) -> str:
        """A stream whose subjects begin with the partition number."""
        name = f"S{uuid.uuid4().hex[:8]}"
        subjects = [f"{number}.{name}.*" for number in range(PARTITIONS)]
        config = {"name": name, "subjects": subjects, "allow_direct": True, "storage": "file"}
        await client.request(f"$JS.API.STREAM.CREATE.{name}", msgspec.json.encode(config))
        return name


async def throughput(bench: Bench) -> dict[str, float]:
    """Messages a second of each kind, from the first to the last of a backlog; the kinds take turns."""
    client = await nats.connect(bench.url)
    stream = await bench.make_stream(client)
    for number in range(MESSAGES):
        await client.publish(subject(stream, number), DATA)
    await client.request(subject(stream, MESSAGES), DATA)  # Answered when all are stored.
    await client.close()
    rates: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(RATE_ROUNDS):
        for kind in bench.kinds("coroutine", "plain", "own"):
            group = await bench.make_group(kind, stream)
            command = bench.command(kind, stream, group, MESSAGES)
            done = await asyncio.to_thread(subprocess.run, command, stdout=subprocess.PIPE, check=True)
            rates[kind].append(float(done.stdout))
    return {kind: statistics.median(found) for kind, found in rates.items()}


def subject(stream: str, number: int) -> str:
    """The subject of a message."""
    return f"{number % PARTITIONS}.{stream}.{number % SUBJECTS}"


class Requests:
    """Requests of pinned instances, as they reach the server: each begins the pin's timeout anew."""

    def __init__(self) -> None:
        self._seen: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def note(self, message: Msg) -> None:
        """A request for messages."""
        if b'"id"' in message.data:
            self._seen[message.subject.rpartition(".")[2]].set()

    async def next(self, consumer: str) -> None:
        """Wait for the next one to a consumer."""
        self._seen[consumer].clear()
        await self._seen[consumer].wait()


class Pair:
    """The active process of a group and the one that stands by; each writes down when it handled a message."""

    def __init__(self, bench: Bench, kind: str, stream: str, group: str) -> None:
        self.kind = kind
        self._consumer = f"{group}-m"
        self._command = bench.command(kind, stream, group, 0)
        self._outputs = [bench.folder / f"{group}-{number}" for number in range(2)]
        self._processes: list[subprocess.Popen[bytes]] = []

    def launch(self) -> None:
        """Start the next process."""
        with self._outputs[len(self._processes)].open("wb") as output:
            self._processes.append(subprocess.Popen(self._command, stdout=output))

    async def first(self, number: int) -> float:
        """When a process handled its first message, in seconds."""
        while True:
            line, end, _ = self._outputs[number].read_bytes().partition(b"\n")
            if end:
                return int(line) / 1e9
            await asyncio.sleep(0.01)

    async def fail_over(self, requests: Requests, delay: float) -> float:
        """Milliseconds from SIGKILL of the active process to the first message that the other handles.

        It is killed so many seconds after a request.
        """
        if self.kind in ("go", "coroutine"):
            await requests.next(self._consumer)
        await asyncio.sleep(delay)
        if self._outputs[1].stat().st_size:
            raise RuntimeError(f"{self.kind}: the stand-by was active before")
        self._processes[0].kill()
        killed = time.time()
        return (await self.first(1) - killed) * 1000

    def close(self) -> None:
        """End both."""
        for process in self._processes:
            process.kill()
            process.wait()


async def failover(bench: Bench, load: Load) -> dict[str, float]:
    """Milliseconds that messages wait when the active process is killed, for each kind.

    The kills of a kind are spread evenly over the time from one request to the next, so that few are enough.
    """
    client = await nats.connect(bench.url)
    times: defaultdict[str, list[float]] = defaultdict(list)
    for number in range(load.rounds):
        stream = await bench.make_stream(client)
        requests = Requests()
        await client.subscribe(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.>", cb=requests.note)
        publishing = asyncio.ensure_future(publish(client, stream, load.rate))
        kills = load.rounds * load.pairs
        delays = [ASK_SECONDS * (number + load.rounds * pair + 0.5) / kills for pair in range(load.pairs)]
        chosen = [(kind, delay) for kind in bench.kinds(*load.kinds) for delay in delays]
        pairs = [Pair(bench, kind, stream, await bench.make_group(kind, stream)) for kind, _ in chosen]
        try:
            for pair in pairs:
                pair.launch()
            await asyncio.gather(*(pair.first(0) for pair in pairs))
            for pair in pairs:
                pair.launch()
            await asyncio.sleep(SETTLE_SECONDS)
            found = await asyncio.gather(
                *(pair.fail_over(requests, delay) for pair, (_, delay) in zip(pairs, chosen, strict=True))
            )
        finally:
            for pair in pairs:
                pair.close()
            publishing.cancel()
        for pair, milliseconds in zip(pairs, found, strict=True):
            times[pair.kind].append(milliseconds)
    await client.close()
    return {kind: statistics.median(found) for kind, found in times.items()}


async def publish(client: Client, stream: str, rate: float) -> None:
    """Publish at a steady rate until cancelled."""
    began, sent = time.monotonic(), 0
    while True:
        while sent < (time.monotonic() - began) * rate:
            await client.publish(subject(stream, sent), DATA)
            sent += 1
        await asyncio.sleep(0.002)


class Figures(msgspec.Struct, frozen=True):
    """What was measured of each kind; makes rows of it."""

    unit: str
    found: dict[str, float]
    go: str
    """What the reference is called."""

    def row(self, name: str, kind: str, peer: str, target: float) -> Row:
        """One kind beside another. A peer that is missing has no figure, and nothing fails for it."""
        ours, theirs = self.found[kind], self.found.get(peer)
        peer_name = self.go if peer == "go" else "JetStream-native group"
        if theirs is None:
            return Row(name=name, ours=ours, peer_name=peer_name, peer=0, unit=self.unit, ratio=0, target=NO_TARGET)
        less = self.unit == "ms"
        return row(name, ours, self.unit, peer_name=peer_name, peer=theirs, target=target, less_is_better=less)


async def measure(bench: Bench) -> list[Row]:
    """All rows."""
    rates = Figures("messages/s", await throughput(bench), bench.peer.name)
    times = Figures("ms", await failover(bench, LOADED), bench.peer.name)
    rare = Figures("ms", await failover(bench, RARE), bench.peer.name)
    order, killed = "strict order", "SIGKILL to the next message"
    return [
        rates.row(f"{order}, coroutine function", "coroutine", "go", 0.9),
        rates.row(f"{order}, plain function", "plain", "go", NO_TARGET),
        rates.row(f"{order}, own group", "own", "go", 1.0),
        rates.row(f"{order}, own group", "own", "coroutine", 1.0),
        times.row(killed, "coroutine", "go", LOADED.not_slower()),
        rare.row(f"{killed}, messages are rare", "coroutine", "go", RARE.not_slower()),
        times.row(f"{killed}, own group, apart", "apart", "go", NO_TARGET),
        times.row(f"{killed}, own group, apart", "apart", "coroutine", NO_TARGET),
        times.row(f"{killed}, own group, same machine", "own", "go", 1.0),
        times.row(f"{killed}, own group, same machine", "own", "coroutine", 1.0),
    ]


def run() -> list[Row]:
    """All rows, on a server of its own."""
    with tempfile.TemporaryDirectory() as folder, NatsServer(Path(folder) / "nats") as server:
        return asyncio.run(measure(Bench(server, Path(folder), Peer(Path(folder)))))


if __name__ == "__main__":
    main(run)

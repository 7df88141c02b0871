"""The broker goes away under load and comes back: no seat changes hands, nothing is lost."""

import asyncio
import uuid
from pathlib import Path

import pytest

from tests.brokers.harnesses import KafkaHarness
from tests.brokers.nats.harness import NatsHarness
from tests.members.stage import PatientStage, Stage, scene

INTERVAL = 1.0


@pytest.fixture(params=["nats", "kafka"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    """A stage on a broker of its own, that can be taken away."""
    group = f"g{uuid.uuid4().hex[:8]}"
    if request.param == "nats":
        nats = request.getfixturevalue("nats_servers")()
        return PatientStage(NatsHarness(nats, "derived"), nats.url, tmp_path, group)
    kafka = request.getfixturevalue("kafka_servers")()
    return Stage(KafkaHarness(kafka), kafka.url, tmp_path, group)


@scene
async def test_no_seat_changes_hands_when_the_broker_restarts_or_is_away_for_long(stage: Stage) -> None:
    await stage.prepare(members=("a", "b"), interval=INTERVAL)
    for name in ("a", "b"):
        stage.launch(name, name, slow=0.002)
    await stage.until_seated("a", "b")
    stage.launch("stand-by", "a")
    await stage.until_joined("stand-by")
    await stage.until_world(lambda world: len(stage.owners()) == len(world.partitions))
    holders, epochs, claims = stage.holders(), stage.epochs(), seat_epochs(stage)

    # Kafka's restart alone takes many intervals.
    for away in (0.0, 5 * INTERVAL) if isinstance(stage, PatientStage) else (0.0,):
        async with stage.load():
            await stage.until_more(100)
            await stage.harness.stop()
            await asyncio.sleep(away)
            await stage.harness.start()
            await stage.until_more(300)

    await stage.until_all_handled()
    assert (stage.holders(), stage.epochs(), seat_epochs(stage)) == (holders, epochs, claims)
    assert not stage.told("PartitionEnded", "SeatLost", "PartitionMoved")
    stage.check("at_least_once")
    await stage.drain("a", "b", "stand-by")


def seat_epochs(stage: Stage) -> dict[str, int]:
    return {seat.member: seat.epoch for seat in stage.world.seats.values()}

"""The two real brokers, each with a stage for Spark applications."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.several import Several
from tests.servers import skip_if_missing
from tests.spark.jvm import quick_java
from tests.spark.seats.spark_stage import SparkStage


@pytest.fixture
def nats_stage(request: pytest.FixtureRequest, tmp_path: Path) -> SparkStage:
    """A stage on a real NATS JetStream."""
    return _stage(request, "nats", tmp_path)


@pytest.fixture
def kafka_stage(request: pytest.FixtureRequest, tmp_path: Path) -> SparkStage:
    """A stage on a real Kafka."""
    return _stage(request, "kafka", tmp_path)


@pytest.fixture(scope="session")
def several() -> Iterator[Several]:
    """A process for audits, so that all of them share a JVM."""
    with skip_if_missing():
        quick_java()
    with Several() as process:
        yield process


def _stage(request: pytest.FixtureRequest, broker: str, folder: Path) -> SparkStage:
    with skip_if_missing():
        quick_java()
    group = f"g{uuid.uuid4().hex[:8]}"
    if broker == "nats":
        from tests.brokers.nats.harness import NatsHarness

        server = request.getfixturevalue("nats_server")
        return SparkStage(NatsHarness(server, "derived"), server.url, folder, group)
    from tests.brokers.harnesses import KafkaHarness

    kafka = request.getfixturevalue("kafka_server")
    return SparkStage(KafkaHarness(kafka), kafka.url, folder, group)

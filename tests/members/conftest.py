"""The two real brokers, each with a stage for processes."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.members.stage import Stage


@pytest.fixture(params=["nats", "kafka"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """A stage on a real NATS JetStream, and on a real Kafka."""
    group = f"g{uuid.uuid4().hex[:8]}"
    if request.param == "nats":
        from tests.brokers.nats.harness import NatsHarness

        server = request.getfixturevalue("nats_server")
        made = Stage(NatsHarness(server, "derived"), server.url, tmp_path, group)
    else:
        from tests.brokers.harnesses import KafkaHarness

        kafka = request.getfixturevalue("kafka_server")
        made = Stage(KafkaHarness(kafka), kafka.url, tmp_path, group)
    yield made
    made.close()

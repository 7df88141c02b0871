"""The two real brokers, each with a stage for processes."""

import uuid
from pathlib import Path

import pytest

from tests.members.stage import Stage


@pytest.fixture(params=["nats", "kafka"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    """A stage on a real NATS JetStream, and on a real Kafka."""
    group = f"g{uuid.uuid4().hex[:8]}"
    if request.param == "nats":
        from tests.brokers.nats.harness import NatsHarness

        server = request.getfixturevalue("nats_server")
        return Stage(NatsHarness(server, "derived"), server.url, tmp_path, group)
    from tests.brokers.harnesses import KafkaHarness

    kafka = request.getfixturevalue("kafka_server")
    return Stage(KafkaHarness(kafka), kafka.url, tmp_path, group)

"""One Spark session for all tests of a process: starting it takes longer than most of them."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from echelon.local import KafkaServer, NatsServer
from echelon.spark import session
from tests.brokers.harnesses import KafkaHarness
from tests.brokers.nats.harness import NatsHarness
from tests.servers import skip_if_missing
from tests.spark.jvm import quick_java
from tests.spark.places import Place


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session with two threads, in UTC, which knows the format `echelon`."""
    settings = {"spark.sql.shuffle.partitions": "2", "spark.log.level": "FATAL", "spark.sql.session.timeZone": "UTC"}
    with skip_if_missing(), pytest.MonkeyPatch.context() as patch:
        for name, value in quick_java().items():
            patch.setenv(name, value)
        made = session.build_session("tests", master="local[2]", settings=settings)
    yield made
    made.stop()


@pytest.fixture(params=["token", "computed", "native"])
def place(request: pytest.FixtureRequest) -> Place:
    """A stream with four partitions: on NATS by token or computed by readers, and on Kafka."""
    if request.param == "native":
        kafka: KafkaServer = request.getfixturevalue("kafka_server")
        return Place(KafkaHarness(kafka), kafka.url, 4)
    nats: NatsServer = request.getfixturevalue("nats_server")
    return Place(NatsHarness(nats, request.param), nats.url, 4)


@pytest.fixture
def computed(nats_server: NatsServer) -> Place:
    """A stream with four partitions that its readers compute."""
    return Place(NatsHarness(nats_server, "computed"), nats_server.url, 4)

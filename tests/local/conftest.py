"""The programs that these tests run; a test that needs a missing one is skipped."""

import pytest

from echelon.local.jars import kafka_jars
from echelon.local.java import find_java
from echelon.local.nats import find_nats_server
from tests.servers import skip_if_missing


@pytest.fixture(scope="session")
def nats_program() -> None:
    with skip_if_missing():
        find_nats_server()


@pytest.fixture(scope="session")
def java_program() -> None:
    with skip_if_missing():
        find_java()


@pytest.fixture(scope="session")
def kafka_program() -> None:
    with skip_if_missing():
        kafka_jars(find_java())

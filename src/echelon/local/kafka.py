"""A real single-node Kafka (KRaft) on this machine."""

import base64
import re
import socket
import struct
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from echelon.errors import BrokerError, InvalidConfig
from echelon.local.jars import kafka_jars
from echelon.local.java import find_java
from echelon.local.server import HOST, Server, free_port, last_lines

_JVM = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")

# Version 1, correlation 0, no client name, no topics. The answer: size, correlation, number of brokers, the rest.
_METADATA_REQUEST = struct.pack(">ihhihi", 14, 3, 1, 0, -1, 0)


class KafkaServer(Server):
    """One Kafka broker that is its own controller.

    `properties` are added to its configuration, or replace what it has. The listener that `url` names is CLIENT;
    it is plain unless the properties map it to something else. `format_options` go to Kafka's storage tool when
    the data folder is new, for example `--add-scram`.
    """

    name = "kafka"
    start_seconds = 60.0
    stop_seconds = 20.0

    def __init__(
        self,
        data: Path,
        *,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        format_options: Sequence[str] = (),
    ) -> None:
        super().__init__(data, port=port)
        self.properties = dict(properties or {})
        self.format_options = tuple(format_options)

    def _prepare(self, port: int) -> Sequence[str]:
        java = find_java()
        kafka = [java, *_JVM, "-cp", f"{kafka_jars(java)}/*"]
        file = self.data / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self._all_properties(port).items()))
        if not (self.data / "logs/meta.properties").exists():
            # A leading hyphen would look like an option.
            identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
            tool = [*kafka, "kafka.tools.StorageTool", "format", "-t", identity, "-c", str(file), *self.format_options]
            done = subprocess.run(tool, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise BrokerError(f"kafka could not format {self.data}:\n{last_lines(done.stdout + done.stderr)}")
        return [*kafka, "kafka.Kafka", str(file)]

    def _all_properties(self, port: int) -> dict[str, str]:
        internal = free_port({port})
        controller = free_port({port, internal})
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "INTERNAL",
            "listeners": f"CLIENT://{HOST}:{port},INTERNAL://{HOST}:{internal},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"CLIENT://{HOST}:{port},INTERNAL://{HOST}:{internal}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data / "logs"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.dedupe.buffer.size": "10485760",  # The default is 128 MiB, all of it resident.
            # After a crash the broker may register again only when its former session has run out.
            "broker.session.timeout.ms": "2000",
            "broker.heartbeat.interval.ms": "500",
            **self.properties,
        }

    def _answers(self, port: int, seconds: float) -> bool:
        """Whether the broker lists itself in its metadata, so takes part in the cluster.

        Asked on the internal listener, since CLIENT may want credentials.
        """
        properties = (self.data / "server.properties").read_text()
        internal = re.search(r"INTERNAL://[^:]*:(\d+)", properties)
        if internal is None:
            raise InvalidConfig("a local Kafka needs its INTERNAL listener", remedy="Leave it in `listeners`")
        try:
            with socket.create_connection((HOST, int(internal[1])), seconds) as connection:
                connection.sendall(_METADATA_REQUEST)
                with connection.makefile("rb") as answer:
                    head = answer.read(12)
        except OSError:
            return False
        return len(head) == 12 and struct.unpack(">iii", head)[2] > 0

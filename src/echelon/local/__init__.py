"""A real nats-server and a real single-node Kafka on this machine, for trying things out and for tests."""

from echelon.local.kafka import KafkaServer
from echelon.local.nats import NatsServer
from echelon.local.server import Server, default_data

__all__ = ["KafkaServer", "NatsServer", "Server", "default_data"]

"""A real nats-server for these tests."""

from tests.servers import nats_server, nats_servers

__all__ = ["nats_server", "nats_servers"]

"""Real nats-servers for these tests."""

from tests.servers import certificates, nats_server, nats_servers, secure_nats

__all__ = ["certificates", "nats_server", "nats_servers", "secure_nats"]

"""NATS JetStream as a broker: `nats://host:port`, `tls://host:port`. It needs nats-server 2.11 or later."""

from echelon.brokers.nats.broker import NatsBroker

__all__ = ["NatsBroker"]

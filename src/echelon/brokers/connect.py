"""From a URL to the broker behind it. A broker's client library is imported only when it is asked for."""

from echelon.brokers.base import Broker
from echelon.errors import InvalidConfig
from echelon.extras import extra


def open_broker(url: str, **options: object) -> Broker:
    """The broker that `url` names, not yet connected: enter it as an async context manager.

    `nats://` and `tls://` are NATS JetStream, `kafka://` is Kafka, `memory://<name>` is a broker in this
    process. The options are the broker's own; see its class. Raises InvalidConfig, and
    MissingComponent if the broker's client library is not installed.
    """
    scheme = url.partition("://")[0]
    match scheme:
        case "nats" | "tls":
            with extra("nats", "nats-py"):
                from echelon.brokers.nats import NatsBroker
            return NatsBroker(url, **options)
        case "kafka":
            with extra("kafka", "confluent-kafka"):
                from echelon.brokers.kafka import KafkaBroker
            return KafkaBroker(url, **options)
        case "memory":
            from echelon.brokers.memory import MemoryBroker

            return MemoryBroker(url, **options)
    # Not the URL itself, which may hold a password.
    raise InvalidConfig("that URL names no broker", remedy="Write nats://host:port, kafka://host:port or memory://name")

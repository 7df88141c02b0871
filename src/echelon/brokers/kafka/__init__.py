"""Kafka, through confluent-kafka: `kafka://host:port[,host:port]`."""

from echelon.brokers.kafka.broker import KafkaBroker

__all__ = ["KafkaBroker"]

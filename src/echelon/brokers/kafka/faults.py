"""Kafka's errors, as those of Echelon."""

from typing import Final

from confluent_kafka import KafkaError

from echelon.errors import BrokerError, Denied, EchelonError, StorageFull, StreamNotFound, TooLarge, Unreachable

# By name, since librdkafka's own codes are private in the Python client.
_MISSING: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})
OUT_OF_RANGE: Final = frozenset({"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "_LOG_TRUNCATION"})
_DENIED: Final = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "SASL_AUTHENTICATION_FAILED",
        "UNSUPPORTED_SASL_MECHANISM",
        "ILLEGAL_SASL_STATE",
        "_AUTHENTICATION",
        "_SSL",
    }
)
_TOO_LARGE: Final = frozenset({"MSG_SIZE_TOO_LARGE", "INVALID_MSG_SIZE", "RECORD_LIST_TOO_LARGE"})
_STORAGE: Final = frozenset({"KAFKA_STORAGE_ERROR", "LOG_DIR_NOT_FOUND"})
_TRANSIENT: Final = frozenset(
    {
        "UNKNOWN",  # Something in the broker failed: a transaction that is ended while another takes its id over.
        "INVALID_TXN_STATE",  # Whoever takes the id over has aborted the transaction; it is begun anew.
        "_TIMED_OUT",
        "_MSG_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "_WAIT_COORD",
        "_WAIT_CACHE",
        "_PURGE_QUEUE",
        "_PURGE_INFLIGHT",
        "_DESTROY",
        "_DESTROY_BROKER",
        "NOT_LEADER_FOR_PARTITION",
        "LEADER_NOT_AVAILABLE",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "NOT_COORDINATOR",
    }
)


def is_denial(error: KafkaError) -> bool:
    """Whether credentials or permissions do not suffice."""
    return error.name() in _DENIED


def fault(error: KafkaError, doing: str) -> EchelonError:
    """The error to raise when `doing` ("append to orders") ended with Kafka's `error`."""
    name, words = error.name(), f"could not {doing}: {error.str()}"
    if name in _MISSING:
        return StreamNotFound(words, remedy="Create the topic, or correct its name")
    if name == "_SSL":
        return Denied(words, remedy="Check the certificates, and that the broker speaks TLS on this port")
    if name in _DENIED:
        return Denied(words, remedy="Check the credentials, and what they permit")
    if name in _TOO_LARGE:
        return TooLarge(words, remedy="Send less, or raise the topic's max.message.bytes")
    if name in _STORAGE:
        return StorageFull(words, remedy="See to the broker's log folder")
    # What a producer that gives up for good had under way may be stored or not, as after a timeout.
    if name in _TRANSIENT or error.retriable() or error.fatal():
        return Unreachable(
            words, remedy="Check that the broker runs, can be reached, and does not want TLS or other credentials"
        )
    return BrokerError(words)

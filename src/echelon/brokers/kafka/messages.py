"""From the messages of confluent-kafka to ours. These run once for each message: they do only what is needed."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, cast

from confluent_kafka import Message as KafkaMessage

from echelon.model import Entry, Message

if TYPE_CHECKING:
    import pyarrow as pa

# More exact than the client's own types: a message that was received has all of these.
offset_of: Final = cast("Callable[[KafkaMessage], int]", KafkaMessage.offset)
partition_of: Final = cast("Callable[[KafkaMessage], int]", KafkaMessage.partition)
_headers_of: Final = cast("Callable[[KafkaMessage], list[tuple[str, bytes | None]] | None]", KafkaMessage.headers)
_key_of: Final = cast("Callable[[KafkaMessage], bytes | None]", KafkaMessage.key)
_value_of: Final = cast("Callable[[KafkaMessage], bytes | None]", KafkaMessage.value)
_time_of: Final = KafkaMessage.timestamp


def to_entries(messages: Sequence[KafkaMessage]) -> list[Entry]:
    """Records of a group's log."""
    return [Entry(offset_of(message), message.timestamp()[1], _value_of(message) or b"") for message in messages]


def to_messages(partition: str, topic: str, messages: Sequence[KafkaMessage]) -> list[Message]:
    """Messages of one partition. A missing value is an empty one."""
    return [
        Message(
            partition,
            offset_of(message),
            topic,
            message.key(),
            _pairs(headers) if (headers := _headers_of(message)) else (),
            message.value() or b"",
            message.timestamp()[1],
        )
        for message in messages
    ]


def to_record_batch(partition: str, topic: str, messages: Sequence[KafkaMessage]) -> "pa.RecordBatch":
    """The same as an Arrow record batch."""
    from echelon.brokers.arrow import from_columns

    headers = list(map(_headers_of, messages))
    return from_columns(
        partition,
        list(map(offset_of, messages)),
        topic,
        list(map(_key_of, messages)),
        [_pairs(each or ()) for each in headers] if any(headers) else None,
        [value or b"" for value in map(_value_of, messages)],
        [time for _, time in map(_time_of, messages)],
    )


def _pairs(headers: Sequence[tuple[str, bytes | None]]) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, value or b"") for name, value in headers)

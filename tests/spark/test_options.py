import pytest

from echelon.errors import InvalidConfig
from echelon.group.config import Stream
from echelon.keys import HeaderKey, RecordKey
from echelon.spark.options import parse
from echelon.spark.process import Access

NATS = {"broker": "nats://host:4222", "stream": "orders"}


def test_the_options_of_a_stream_on_nats() -> None:
    given = {
        **NATS,
        "PARTITIONS": "12",
        "Key": "header:order",
        "partitioning": "computed",
        "startingPositions": "earliest",
        "maxMessagesPerTrigger": "1000",
        "maxBytesPerTrigger": "5000",
        "failOnDataLoss": "False",
        "tasks": "3",
        "broker.user": "me",
        "broker.password": "secret",
    }
    options = parse(given)
    assert options.access == Access("nats://host:4222", (("password", "secret"), ("user", "me")))
    assert options.stream == Stream("orders", 12, HeaderKey("order"), "computed")
    assert (options.start, options.end) == ("earliest", None)
    assert (options.most_messages, options.most_bytes, options.tasks) == (1000, 5000, 3)
    assert not options.fails_on_loss
    assert "secret" not in repr(options)


def test_a_topic_brings_its_partitions_and_keys() -> None:
    options = parse({"broker": "kafka://host:9092", "stream": "orders"})
    assert options.stream == Stream("orders", 1, RecordKey(), "native")
    assert options.fails_on_loss


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"broker": ""}, "broker is missing"),
        ({"maxOffsetsPerTrigger": "5"}, "'maxoffsetspertrigger' is no option of the format echelon"),
        ({"path": "x"}, "'path' is no option"),
        ({"group": "g"}, "either the option group or the option stream"),
        ({"stream": None}, "either the option group or the option stream"),
        ({"stream": None, "group": "g", "key": "subject"}, "key was given with a group"),
        ({"broker": "kafka://host:1", "partitions": "3"}, "partitions was given, but a Kafka topic has"),
        ({"partitions": "0"}, "partitions is '0'; it must be a number above 0"),
        ({"tasks": "many"}, "tasks is 'many'"),
        ({"partitioning": "derived"}, "for derived, make a group"),
        ({"failOnDataLoss": "no"}, "must be true or false"),
        ({"key": "order"}, "'order' is no key"),
        ({"key": "tokens:a.*:2"}, "wildcard 2"),
        ({"startingPositions": "now"}, "names no positions"),
    ],
)
def test_a_wrong_option_is_named_and_no_secret_shown(changed: dict[str, str | None], words: str) -> None:
    given = {**NATS, "broker.password": "secret", **changed}
    with pytest.raises(InvalidConfig, match=words) as caught:
        parse({name: value for name, value in given.items() if value is not None})
    assert "secret" not in str(caught.value)

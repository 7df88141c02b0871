"""The options of the format `echelon`, from what Spark passes to what is meant."""

import os
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from echelon.errors import InvalidConfig
from echelon.group.config import Partitioning, Stream
from echelon.keys import RecordKey, check_key, parse_key
from echelon.spark.offsets import Place, parse_place
from echelon.spark.process import Access

_PREFIX: Final = "broker."
_NAMES: Final = (
    "broker", "group", "stream", "partitions", "key", "partitioning", "startingPositions", "endingPositions",
    "maxMessagesPerTrigger", "maxBytesPerTrigger", "failOnDataLoss", "tasks",
)  # fmt: skip
_OF_A_STREAM: Final = ("stream", "partitions", "key", "partitioning")


class Options(Struct, frozen=True):
    """What a query reads and how. It is of a `group`, or of a `stream` that is read without one.

    `start` and `end` are None where nothing was said. `tasks` is how many tasks share a stream whose readers
    compute the partition.
    """

    access: Access
    group: str
    stream: Stream | None
    start: Place | None
    end: Place | None
    most_messages: int | None
    most_bytes: int | None
    fails_on_loss: bool
    tasks: int


def parse(given: Mapping[str, str]) -> Options:
    """The options as they are meant. Names are taken in any case, as Spark does.

    Options after `broker.` are the broker's own: `broker.password`. Raises InvalidConfig, and never repeats a value
    that may be a secret.
    """
    values = {name.lower(): value for name, value in given.items()}
    known = {name.lower() for name in _NAMES}
    for name in values:
        if name not in known and not name.startswith(_PREFIX):
            raise InvalidConfig(
                f"'{name}' is no option of the format echelon",
                remedy=f"Use {', '.join(_NAMES)}, or the broker's own options after '{_PREFIX}'",
            )
    if not values.get("broker"):
        raise InvalidConfig("the option broker is missing", remedy="Give the broker's URL, as nats://host:port")
    own = {name.removeprefix(_PREFIX): value for name, value in values.items() if name.startswith(_PREFIX)}
    return Options(
        access=Access(values["broker"], tuple(sorted(own.items()))),
        group=values.get("group", ""),
        stream=_stream(values),
        start=_place("startingPositions", values),
        end=_place("endingPositions", values),
        most_messages=_count("maxMessagesPerTrigger", values),
        most_bytes=_count("maxBytesPerTrigger", values),
        fails_on_loss=_switch("failOnDataLoss", values),
        tasks=_count("tasks", values) or os.cpu_count() or 1,
    )


def _stream(values: Mapping[str, str]) -> Stream | None:
    """The stream of a query without a group, as far as the options tell."""
    if ("group" in values) == ("stream" in values):
        raise InvalidConfig("either the option group or the option stream has to be given, and not both")
    if "group" in values:
        extra = [name for name in _OF_A_STREAM if name in values]
        if extra:
            raise InvalidConfig(f"the option {extra[0]} was given with a group, whose configuration says that already")
        return None
    name = values["stream"]
    if values["broker"].startswith("kafka://"):
        extra = [each for each in _OF_A_STREAM[1:] if each in values]
        if extra:
            raise InvalidConfig(
                f"the option {extra[0]} was given, but a Kafka topic has partitions and keys of its own"
            )
        return Stream(name, 1, RecordKey(), "native")
    key = parse_key(values.get("key", "subject"))
    check_key(key)
    return Stream(name, _count("partitions", values) or 1, key, _partitioning(values))


def _partitioning(values: Mapping[str, str]) -> Partitioning:
    match values.get("partitioning", "computed"):
        case "computed":
            return "computed"
        case "token":
            return "token"
        case other:
            raise InvalidConfig(
                f"the option partitioning is '{other}'", remedy="Use token or computed; for derived, make a group"
            )


def _place(option: str, values: Mapping[str, str]) -> Place | None:
    text = values.get(option.lower())
    return None if text is None else parse_place(option, text)


def _count(option: str, values: Mapping[str, str]) -> int | None:
    text = values.get(option.lower())
    if text is None:
        return None
    if not text.isdecimal() or not int(text):
        raise InvalidConfig(f"the option {option} is '{text}'; it must be a number above 0")
    return int(text)


def _switch(option: str, values: Mapping[str, str]) -> bool:
    text = values.get(option.lower(), "true").lower()
    if text not in ("true", "false"):
        raise InvalidConfig(f"the option {option} is '{text}'; it must be true or false")
    return text == "true"

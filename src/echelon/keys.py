"""Keys: what order is kept by, and the partition that a key falls into.

Messages of one key are processed in order, because they are in one partition. The partition numbers are
those that nats-server and Kafka's own producers compute, to the bit, so that a stream that was partitioned
by them and one that is partitioned here agree.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from struct import unpack_from
from typing import Final

from msgspec import Struct

from echelon.errors import InvalidConfig

Headers = Sequence[tuple[str, bytes]]
Extract = Callable[[str, Headers, bytes | None], bytes | None]

# Keys repeat. A remembered one costs about a fifteenth of hashing it, one that is not a fifth more.
_REMEMBERED: Final = 16_384


class TokensKey(Struct, frozen=True, tag_field="from", tag="tokens"):
    """The key is made of the tokens that stand for some of the `*` in `filter`.

    `wildcards` numbers these `*` from 1, in the order in which their tokens are joined. They are joined
    without separator, as nats-server does: `a.bc` and `ab.c` are one key.
    """

    filter: str
    wildcards: tuple[int, ...]


class SubjectKey(Struct, frozen=True, tag_field="from", tag="subject"):
    """The key is the whole subject, of the messages whose subject matches `filter`."""

    filter: str = ">"


class HeaderKey(Struct, frozen=True, tag_field="from", tag="header"):
    """The key is the first value of the header `name`, of the messages whose subject matches `filter`.

    Messages without the header have the empty key: they keep order with each other.
    """

    name: str
    filter: str = ">"


class RecordKey(Struct, frozen=True, tag_field="from", tag="record"):
    """The key is the Kafka record's own; None for a record that has none."""


Key = TokensKey | SubjectKey | HeaderKey | RecordKey


def check_key(key: Key) -> None:
    """Raise InvalidConfig, naming the mistake, unless messages can have this key."""
    match key:
        case TokensKey(filter, wildcards):
            _check_filter(filter)
            _check_wildcards(filter, wildcards)
        case SubjectKey(filter):
            _check_filter(filter)
        case HeaderKey(name, filter):
            _check_header(name)
            _check_filter(filter)
        case RecordKey():
            pass


def parse_key(text: str) -> Key:
    """The key that a short form names; `check_key` tells whether messages can have it.

    The forms are `subject`, `subject:FILTER`, `tokens:FILTER:1,2`, `header:NAME`, `header:NAME:FILTER` and `record`.
    Raises InvalidConfig.
    """
    match text.split(":"):
        case ["record"]:
            return RecordKey()
        case ["subject"]:
            return SubjectKey()
        case ["subject", filter]:
            return SubjectKey(filter)
        case ["header", name]:
            return HeaderKey(name)
        case ["header", name, filter]:
            return HeaderKey(name, filter)
        case ["tokens", filter, numbers] if all(number.isdecimal() for number in numbers.split(",")):
            return TokensKey(filter, tuple(int(number) for number in numbers.split(",")))
    raise InvalidConfig(
        f"'{text}' is no key",
        remedy="Write subject, subject:FILTER, tokens:FILTER:1,2, header:NAME, header:NAME:FILTER or record",
    )


def matches(filter: str, subject: str) -> bool:
    """Whether a valid filter takes in the subject. `*` stands for one token, a last `>` for one or more."""
    pattern = filter.split(".")
    tokens = subject.split(".")
    if pattern[-1] == ">":
        del tokens[len(pattern) :]
        pattern[-1] = "*"
    return len(tokens) == len(pattern) and all(p in ("*", token) for p, token in zip(pattern, tokens, strict=True))


def extractor(key: Key) -> Extract:
    """A function from a message's subject, headers and Kafka key to its key.

    The subject must match the key's filter, which must be valid: neither is checked again for each message.
    """
    match key:
        case TokensKey(filter, wildcards):
            return _tokens_extractor(filter, wildcards)
        case SubjectKey():
            return lambda subject, _headers, _record_key: subject.encode()
        case HeaderKey(name):
            return lambda _subject, headers, _record_key: next((value for n, value in headers if n == name), b"")
        case RecordKey():
            return lambda _subject, _headers, record_key: record_key


def key_name(key: bytes | None) -> str:
    """A key as it is written in records and shown to people."""
    return "" if key is None else key.decode(errors="backslashreplace")


def fnv1a_32(data: bytes) -> int:
    """The 32-bit FNV-1a hash of `data`, unsigned."""
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def murmur2(data: bytes) -> int:
    """The hash of Kafka's default partitioner: a signed 32-bit number, as in Java."""
    length = len(data)
    value = 0x9747B28C ^ length
    for word in unpack_from(f"<{length >> 2}I", data):
        mixed = word * 0x5BD1E995 & 0xFFFFFFFF
        value = (value * 0x5BD1E995 ^ (mixed ^ mixed >> 24) * 0x5BD1E995) & 0xFFFFFFFF
    if length & 3:
        value = (value ^ int.from_bytes(data[length & ~3 :], "little")) * 0x5BD1E995 & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    value ^= value >> 15
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


@lru_cache(_REMEMBERED)
def nats_partition(key: bytes, partitions: int) -> int:
    """The partition of a key, as nats-server's `Partition` transform computes it."""
    return fnv1a_32(key) % partitions


@lru_cache(_REMEMBERED)
def kafka_partition(key: bytes, partitions: int) -> int:
    """The partition of a record's key, as the default partitioner of Kafka's Java client computes it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def _tokens_extractor(filter: str, wildcards: tuple[int, ...]) -> Extract:
    stars = _stars(filter)
    places = [stars[wildcard - 1] for wildcard in wildcards]
    splits = max(places) + 1
    if len(places) == 1:
        place = places[0]
        return lambda subject, _headers, _record_key: subject.split(".", splits)[place].encode()
    chosen = itemgetter(*places)
    return lambda subject, _headers, _record_key: "".join(chosen(subject.split(".", splits))).encode()


def _stars(filter: str) -> list[int]:
    return [place for place, part in enumerate(filter.split(".")) if part == "*"]


def _check_filter(filter: str) -> None:
    if not filter:
        raise InvalidConfig("the subject filter is empty", remedy="Use '>' for all subjects")
    tokens = filter.split(".")
    if "" in tokens:
        raise InvalidConfig(f"the subject filter '{filter}' has an empty token", remedy="Take out the extra dot")
    if any(character.isspace() for character in filter):
        raise InvalidConfig(f"the subject filter '{filter}' has white space in it", remedy="No subject has any")
    if ">" in tokens[:-1]:
        raise InvalidConfig(f"'>' is not the last token of the subject filter '{filter}'", remedy="Use '*' there")
    if "*" not in tokens and tokens[-1] != ">":
        raise InvalidConfig(
            f"the subject filter '{filter}' matches a single subject",
            remedy="Use at least one '*', or '>' as the last token",
        )


def _check_wildcards(filter: str, wildcards: tuple[int, ...]) -> None:
    stars = len(_stars(filter))
    if not wildcards:
        raise InvalidConfig(
            f"the key chooses none of the wildcards of '{filter}'",
            remedy="Choose at least one, or use the whole subject as key",
        )
    if len(set(wildcards)) < len(wildcards):
        raise InvalidConfig(f"the key chooses a wildcard of '{filter}' twice: {', '.join(map(str, wildcards))}")
    for wildcard in wildcards:
        if not 1 <= wildcard <= stars:
            raise InvalidConfig(
                f"the key chooses wildcard {wildcard} of '{filter}', which has {stars}",
                remedy="Count each '*' from 1; a '>' is not counted",
            )


def _check_header(name: str) -> None:
    if not name:
        raise InvalidConfig("the name of the key's header is empty")
    if ":" in name or any(character.isspace() for character in name):
        raise InvalidConfig(f"'{name}' cannot name a header", remedy="Use no colons and no white space")

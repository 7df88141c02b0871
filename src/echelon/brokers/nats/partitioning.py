"""The three ways to partition a stream: what each needs of it, and where its messages then belong.

`token`: the subjects in the stream begin with the number of the partition. `derived`: a second stream sources
the first and puts that number before the subjects. `computed`: readers hash the key of each message.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from echelon.brokers.nats.api import Details, JetStream
from echelon.brokers.nats.columns import Headers, Locate, Place
from echelon.brokers.nats.subjects import covers, number_wildcards, overlap
from echelon.errors import InvalidConfig, NotPartitionable, StreamNotFound
from echelon.group.config import MAX_PARTITIONS, Stream
from echelon.keys import HeaderKey, RecordKey, TokensKey, check_key, extractor, matches, nats_partition

_GROUP: Final = "echelon.group"
_STREAM: Final = "echelon.stream"
# What a derived stream has from its origin.
_INHERITED: Final = (
    "storage", "num_replicas", "max_age", "max_bytes", "max_msgs", "max_msgs_per_subject", "max_msg_size",
    "compression", "placement", "allow_msg_ttl",
)  # fmt: skip
_PARTITION: Final = re.compile(r"\{\{\s*partition\(([\d\s,]+)\)\s*\}\}\.", re.IGNORECASE)


class Layout(Struct, frozen=True):
    """How the messages of `source`, the stream that is read, fall into partitions.

    `filter` matches the subjects of all partitions, `filters` those of each; there is one only if the stream's
    subjects tell. An empty filter stands for the whole stream. `is_compacted` says that messages go when newer
    ones come on their subjects.
    """

    source: str
    filter: str
    filters: tuple[str, ...] | None
    partitions: int
    is_compacted: bool
    locate: Locate

    def filter_of(self, partition: int) -> str:
        """The narrowest filter that lets the partition's messages through."""
        return self.filters[partition] if self.filters else self.filter

    def is_best_read_whole(self, count: int) -> bool:
        """Whether all of the stream is best read at once for so many of its partitions.

        The server spends about as much on passing over three messages as on sending one.
        """
        return self.filters is None or 3 * count >= self.partitions


async def prepare(js: JetStream, group: str, stream: Stream) -> Details:
    """Check that the stream can be partitioned as it says, and make the derived stream if it is to be.

    Returns the stream that will be read. Raises StreamNotFound, NotPartitionable, InvalidConfig.
    """
    check_key(stream.key)
    if not 1 <= stream.partitions <= MAX_PARTITIONS:
        raise InvalidConfig(
            f"stream {stream.name} has {stream.partitions} partitions; it must be 1 to {MAX_PARTITIONS}"
        )
    origin = await js.details(stream.name)
    _check_key(stream)
    _check_stream(stream, origin.config)
    if stream.partitioning == "derived":
        return await _derive(js, group, stream, origin.config)
    if not origin.config.get("allow_direct"):
        raise NotPartitionable(
            f"the stream {stream.name} does not answer direct gets, by which it would be read",
            remedy=f"Allow them (nats stream edit {stream.name} --allow-direct), or use 'derived'",
        )
    if stream.partitioning == "token":
        _check_tokens(stream, origin.config)
    return origin


async def layout(js: JetStream, group: str, stream: Stream) -> Layout:
    """How a stream that was prepared is read. Raises StreamNotFound, NotPartitionable."""
    _check_key(stream)
    is_derived = stream.partitioning == "derived"
    config = (await _find_derived(js, group, stream) if is_derived else await js.details(stream.name)).config
    is_computed = stream.partitioning == "computed"
    every = _filter(stream) if is_computed else f"*.{_filter(stream)}"
    stored = _stored(config) or [">"]
    return Layout(
        source=config["name"],
        filter="" if is_derived or all(covers(every, each) for each in stored) else every,
        filters=None if is_computed else tuple(f"{n}.{_filter(stream)}" for n in range(stream.partitions)),
        partitions=stream.partitions,
        is_compacted=config.get("max_msgs_per_subject", -1) > 0,
        locate=_computed(stream) if is_computed else _by_token(stream),
    )


async def derived_streams(js: JetStream, group: str) -> list[str]:
    """The names of the streams that were derived for a group."""
    names = [name for name in await js.streams() if name == _name(group) or name.startswith(f"{_name(group)}+")]
    return [name for name in names if (await js.details(name)).config.get("metadata", {}).get(_GROUP) == group]


def _by_token(stream: Stream) -> Locate:
    numbers = {str(number): number for number in range(stream.partitions)}
    key_of, wanted = extractor(stream.key), _filter(stream)

    def locate(subject: str, _headers: Headers) -> Place | None:
        token, _, rest = subject.partition(".")
        if token not in numbers or not matches(wanted, rest):
            return None
        return Place(numbers[token], rest, key_of(rest, (), None) or b"")

    return locate


def _computed(stream: Stream) -> Locate:
    key_of, wanted, count = extractor(stream.key), _filter(stream), stream.partitions

    def locate(subject: str, headers: Headers) -> Place | None:
        if not matches(wanted, subject):
            return None
        key = key_of(subject, headers, None) or b""
        return Place(nats_partition(key, count), subject, key)

    return locate


def _filter(stream: Stream) -> str:
    assert not isinstance(stream.key, RecordKey), "checked before"
    return stream.key.filter


def _check_key(stream: Stream) -> None:
    if stream.partitioning == "native":
        raise NotPartitionable(
            f"the stream {stream.name} has no partitions of its own, as Kafka's topics have",
            remedy="Use 'computed', 'derived' or 'token'",
        )
    if isinstance(stream.key, RecordKey):
        raise NotPartitionable(
            f"the messages of {stream.name} have no key of their own, as Kafka's records have",
            remedy="Make the key of tokens of the subject, of the whole subject, or of a header",
        )
    if isinstance(stream.key, HeaderKey) and stream.partitioning != "computed":
        raise NotPartitionable(
            f"the server cannot partition {stream.name} by the header {stream.key.name}",
            remedy="Use 'computed', or make the key of the subject",
        )


def _check_stream(stream: Stream, config: Mapping[str, Any]) -> None:
    if config.get("retention", "limits") != "limits":
        raise NotPartitionable(
            f"the stream {stream.name} deletes what its consumers have acknowledged ({config['retention']})",
            remedy="Use a stream with the retention 'limits', or source this one into such a stream",
        )
    stored = _stored(config)
    wanted = f"*.{_filter(stream)}" if stream.partitioning == "token" else _filter(stream)
    if stored and not any(overlap(wanted, subject) for subject in stored):
        raise NotPartitionable(
            f"no subject of the stream {stream.name} matches {wanted}",
            remedy=f"It takes {', '.join(stored)}",
        )


def _stored(config: Mapping[str, Any]) -> list[str]:
    """What the subjects in a stream can be; nothing if its configuration does not tell."""
    if config.get("subject_transform") or config.get("sources") or config.get("mirror"):
        return []
    return list(config.get("subjects") or [])


def _check_tokens(stream: Stream, config: Mapping[str, Any]) -> None:
    """A transform says by what it partitions; of subjects that come with the number, only the number is known."""
    transforms = [config["subject_transform"]] if config.get("subject_transform") else []
    sources = config.get("sources") or []
    transforms += [each for source in sources for each in source.get("subject_transforms") or []]
    for transform in transforms:
        _check_transform(stream, transform)
    if transforms or config.get("mirror") or sources:
        return
    numbers = {str(number) for number in range(stream.partitions)}
    for subject in config.get("subjects") or []:
        if subject.partition(".")[0] not in numbers:
            raise NotPartitionable(
                f"the subject {subject} of the stream {stream.name} does not begin with a partition from 0 to "
                f"{stream.partitions - 1}",
                remedy="Use 'derived' or 'computed', or give the stream a subject transform with {{Partition()}}",
            )


def _check_transform(stream: Stream, transform: Mapping[str, str]) -> None:
    found = _PARTITION.match(transform.get("dest", ""))
    numbers = [int(number) for number in found[1].split(",")] if found else []
    if not numbers:
        raise NotPartitionable(
            f"the stream {stream.name} turns {transform.get('src')} into {transform.get('dest')}, which does not "
            "begin with a partition",
            remedy="Begin it with {{Partition(...)}}, or use 'derived' or 'computed'",
        )
    wildcards = list(stream.key.wildcards) if isinstance(stream.key, TokensKey) else []
    if numbers != [stream.partitions, *wildcards]:
        raise NotPartitionable(
            f"the stream {stream.name} is partitioned by {found[0].rstrip('.') if found else ''}, which is not what "
            "the group's key and number of partitions say",
            remedy="Give the group the same, or use 'derived' or 'computed'",
        )


def _name(group: str) -> str:
    return f"ECHELON-{group}"


def _names(group: str, stream: Stream) -> tuple[str, str]:
    """The derived stream of a group's only or first stream, and what those of the others are called."""
    return _name(group), f"{_name(group)}+{stream.name}"


def _source(stream: Stream) -> dict[str, Any]:
    wildcards = stream.key.wildcards if isinstance(stream.key, TokensKey) else ()
    arguments = ",".join(map(str, (stream.partitions, *wildcards)))
    destination = f"{{{{Partition({arguments})}}}}.{number_wildcards(_filter(stream))}"
    return {"name": stream.name, "subject_transforms": [{"src": _filter(stream), "dest": destination}]}


async def _derive(js: JetStream, group: str, stream: Stream, origin: Mapping[str, Any]) -> Details:
    config = {name: origin[name] for name in _INHERITED if name in origin}
    config["allow_direct"] = True
    config["description"] = f"{stream.name}, partitioned for the group {group}"
    config["sources"] = [_source(stream)]
    config["metadata"] = {_GROUP: group, _STREAM: stream.name}
    for name in _names(group, stream):
        try:
            found = await js.details(name)
        except StreamNotFound:
            # If two make it at once, with what only one of them wants, the other sees that next.
            found = await js.create_stream({**config, "name": name}) or await js.details(name)
        if _is_derived(found, group, stream):
            return found
    raise AssertionError("the name of a derived stream is its own")


def _is_derived(found: Details, group: str, stream: Stream) -> bool:
    """Whether a stream is the one derived from `stream`. Raises NotPartitionable if it is, but in another way."""
    name, metadata = found.config["name"], found.config.get("metadata", {})
    if metadata.get(_GROUP) != group:
        raise NotPartitionable(f"the stream {name} is in the way", remedy="Rename the group, or delete that stream")
    if metadata.get(_STREAM) != stream.name:
        return False
    source = _source(stream)
    if [{key: each.get(key) for key in source} for each in found.config.get("sources", [])] != [source]:
        raise NotPartitionable(
            f"the stream {name} was derived from {stream.name} with another key or number of partitions",
            remedy=f"Delete the old group {group}, or delete that stream, or choose another name",
        )
    return True


async def _find_derived(js: JetStream, group: str, stream: Stream) -> Details:
    for name in _names(group, stream):
        found = await js.details(name)
        if _is_derived(found, group, stream):
            return found
    raise StreamNotFound(f"no stream was derived from {stream.name} for the group {group}")

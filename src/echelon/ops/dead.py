"""Dead letters: what handlers gave up on, and what an administrator decided about it.

A decision is a message of its own among the dead letters, so it is the same on every broker: a letter with a
decision is no longer listed.
"""

from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Final, Literal

from msgspec import Struct

from echelon.brokers.base import Broker, Reader, Writer
from echelon.errors import OutOfRange, StreamNotFound, UnknownName
from echelon.group.config import Config
from echelon.group.world import World
from echelon.keys import HeaderKey, extractor, key_name
from echelon.model import Message, publishers_headers
from echelon.ops.status import when

Decision = Literal["retry", "skip"]
_DECIDED: Final = "echelon-decided"


class Origin(Struct, frozen=True):
    """Where dead letters come from: a group, what their subject calls it, and its identity and configuration.

    A JetStream-native group has no configuration of this kind: of its messages only what the letters tell is known.
    """

    group: str
    called: str
    identity: str
    config: Config | None = None


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A message that a handler gave up on. `letter` is its number among the dead letters."""

    letter: int
    time: datetime
    partition: str
    sequence: int
    subject: str
    key: str | None
    attempts: int
    error: str
    size: int


def origin(group: str, world: World) -> Origin:
    """Where the dead letters of a group with a log come from."""
    return Origin(group, group, world.identity, world.config)


async def list_dead(broker: Broker, origin: Origin) -> list[DeadLetter]:
    """The dead letters about which nothing was decided yet, in order."""
    return [_letter(origin, message) for message in await _undecided(broker, origin.called)]


async def decide(broker: Broker, origin: Origin, letters: Sequence[int], decision: Decision) -> list[DeadLetter]:
    """Have these dead letters published anew at the end of their streams, or (`skip`) forgotten.

    One that is retried reaches all who read the stream, and comes after what its key has had since. Raises
    UnknownName, before anything is done, if there is no such letter.
    """
    group = origin.group
    there = {message.sequence: message for message in await _undecided(broker, origin.called)}
    for letter in letters:
        if letter not in there:
            raise UnknownName(
                f"the group {group} has no dead letter {letter}", remedy=f"List them with: echelon dead list {group}"
            )
    writer = await broker.writer()
    done = []
    for letter in dict.fromkeys(letters):
        message = there[letter]
        if decision == "retry":
            await _publish(broker, writer, origin, message)
        headers = {"echelon-group": origin.called, _DECIDED: str(letter), "echelon-decision": decision}
        identity = f"{origin.identity}-decided-{letter}"
        await writer.write(broker.dead_letters(origin.called), b"", headers=headers, id=identity)
        done.append(_letter(origin, message))
    return done


async def _undecided(broker: Broker, group: str) -> list[Message]:
    try:
        reader = await broker.reader(group, broker.dead_stream(group))
        bounds = (await reader.info()).bounds[0]
    except StreamNotFound:  # A group that was made without a place for them has none.
        return []
    letters: dict[int, Message] = {}
    async with aclosing(reader.read(0, bounds.first, bounds.end)) as parts:
        async for messages in parts:
            for message in messages:
                decided = _header(message, _DECIDED)
                if decided:
                    letters.pop(int(decided), None)
                else:
                    letters[message.sequence] = message
    return list(letters.values())


def _letter(origin: Origin, message: Message) -> DeadLetter:
    return DeadLetter(
        letter=message.sequence,
        time=when(message.time),
        partition=_header(message, "echelon-partition"),
        sequence=int(_header(message, "echelon-sequence") or 0),
        subject=_header(message, "echelon-subject"),
        key=_key(origin.config, message),
        attempts=int(_header(message, "echelon-attempts") or 0),
        error=_header(message, "echelon-error"),
        size=len(message.data),
    )


def _key(config: Config | None, message: Message) -> str | None:
    """The key of the message that is dead; None if the letter does not tell it, as when it was in a header."""
    partition = _header(message, "echelon-partition")
    if config is None or partition not in config.positions:
        return None
    stream, _ = config.locate(partition)
    if isinstance(stream.key, HeaderKey):
        return None
    return key_name(extractor(stream.key)(_header(message, "echelon-subject"), (), message.key))


async def _publish(broker: Broker, writer: Writer, origin: Origin, letter: Message) -> None:
    """Publish the message anew, with its headers if the stream still holds it, or the letter tells them."""
    partition, sequence = _header(letter, "echelon-partition"), int(_header(letter, "echelon-sequence"))
    number, message, may_carry = partition, None, True
    if origin.config is not None:
        stream, place = origin.config.locate(partition)
        reader = await broker.reader(origin.called, stream, alone=len(origin.config.streams) == 1)
        number, message, may_carry = str(place), await _read(reader, place, sequence), stream.partitioning == "token"
    kept = publishers_headers(letter if message is None else message)
    headers = {**kept, "echelon-retry-of": f"{partition}@{sequence}"}
    subject, identity = _header(letter, "echelon-subject"), f"{origin.identity}-retry-{letter.sequence}"
    key = letter.key if message is None else message.key
    try:
        await writer.write(subject, letter.data, key=key, headers=headers, id=identity)
    except StreamNotFound:
        if not may_carry:
            raise
        # A stream may take only subjects that carry the partition already.
        await writer.write(f"{number}.{subject}", letter.data, key=key, headers=headers, id=identity)


async def _read(reader: Reader, number: int, sequence: int) -> Message | None:
    try:
        async with aclosing(reader.read(number, sequence, sequence + 1)) as parts:
            async for messages in parts:
                return messages[0]
    except OutOfRange:
        pass
    return None


def _header(message: Message, name: str) -> str:
    return next((value.decode(errors="replace") for n, value in message.headers if n.lower() == name), "")

"""Dead letters: what is listed, what a decision does, and that it is done once."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping

import pytest

from echelon.brokers.memory import MemoryBroker
from echelon.errors import TooLarge, UnknownName
from echelon.group.config import Stream
from echelon.group.world import World
from echelon.keys import Key, SubjectKey, TokensKey
from echelon.members.admin import create_group
from echelon.members.dead_letter import DeadLetter
from echelon.model import Message, publishers_headers
from echelon.ops.dead import decide, list_dead, origin
from tests.brokers.harnesses import MemoryHarness

Body = Callable[[MemoryBroker, World], Awaitable[None]]


def play(body: Body, key: Key | None = None) -> None:
    """A group over three messages, of which the first two are dead letters 1 and 2."""

    async def run() -> None:
        harness = MemoryHarness(uuid.uuid4().hex)
        async with harness.connect() as broker:
            harness.server.create_stream("S")
            writer = await broker.writer()
            for number in range(3):
                await writer.write(f"S.k{number}", b"%d" % number, headers={"colour": "red", "Nats-Msg-Id": "x"})
            world = await create_group(broker, "g", [Stream("S", 1, key or SubjectKey())], start="earliest")
            for message in (await stored(broker))[:2]:
                letter = DeadLetter("g", message, ValueError("no"), 3)
                await letter.write(writer, broker.dead_letters("g"), uuid.uuid4().hex)
            await body(broker, world)

    asyncio.run(run())


async def stored(broker: MemoryBroker) -> list[Message]:
    """All that the stream holds now."""
    reader = await broker.reader("g", Stream("S", 1, SubjectKey()))
    end = (await reader.info()).bounds[0].end
    return [message async for messages in reader.read(0, 1, end) for message in messages]


def test_dead_letters_are_listed_with_what_is_known_of_their_messages() -> None:
    async def body(broker: MemoryBroker, world: World) -> None:
        first, second = await list_dead(broker, origin("g", world))
        assert (first.letter, first.partition, first.sequence, first.subject) == (1, "0", 1, "S.k0")
        assert (first.key, first.attempts, first.error, first.size) == ("k0", 3, "ValueError('no')", 1)
        assert (second.letter, second.sequence, second.key) == (2, 2, "k1")

    play(body, TokensKey("S.*", (1,)))


def test_a_retry_publishes_the_message_anew_with_its_own_headers() -> None:
    async def body(broker: MemoryBroker, world: World) -> None:
        [done] = await decide(broker, origin("g", world), [1], "retry")
        assert done.letter == 1
        assert [letter.letter for letter in await list_dead(broker, origin("g", world))] == [2]
        again = (await stored(broker))[-1]
        assert (again.subject, again.data) == ("S.k0", b"0")
        headers = dict(again.headers)
        assert (headers["colour"], headers["echelon-retry-of"]) == (b"red", b"0@1")
        assert not any(name.lower().startswith("nats-") for name in headers), "the broker would drop it as a copy"

    play(body)


def test_a_retry_works_also_when_the_message_is_gone() -> None:
    async def body(broker: MemoryBroker, world: World) -> None:
        broker.server.streams["S"].trim(3)
        await decide(broker, origin("g", world), [2], "retry")
        reader = await broker.reader("g", Stream("S", 1, SubjectKey()))
        again = [message async for messages in reader.read(0, 3, 5) for message in messages][-1]
        assert (again.subject, again.data) == ("S.k1", b"1")
        headers = dict(again.headers)
        assert (headers["colour"], headers["echelon-retry-of"]) == (b"red", b"0@2")

    play(body)


def test_of_several_headers_with_one_name_a_copy_has_the_first_by_which_its_key_goes() -> None:
    message = Message("0", 1, "S.k", None, (("user", b"a"), ("Nats-Msg-Id", b"x"), ("user", b"b")), b"", 0)
    assert publishers_headers(message) == {"user": "a"}


class Picky:
    """A writer to which some header is too much."""

    def __init__(self) -> None:
        self.written: list[tuple[str, bytes, Mapping[str, str]]] = []

    async def write(
        self,
        subject: str,
        data: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        id: str = "",
    ) -> int:
        assert (key, id, headers is None) == (b"k", "id", False)
        if headers and "colour" in headers:
            raise TooLarge("too much")
        self.written.append((subject, data, headers or {}))
        return 1


def test_a_message_whose_headers_are_too_much_becomes_a_dead_letter_without_them() -> None:
    writer, message = Picky(), Message("0", 7, "S.k", b"k", (("colour", b"red"),), b"data", 0)
    asyncio.run(DeadLetter("g", message, ValueError("no"), 3).write(writer, "DEAD.g", "id"))
    [(subject, data, headers)] = writer.written
    assert (subject, data) == ("DEAD.g", b"data")
    assert (headers["echelon-sequence"], headers["echelon-error"]) == ("7", "ValueError('no')")


def test_a_letter_that_is_skipped_is_off_the_list_and_published_to_nobody() -> None:
    async def body(broker: MemoryBroker, world: World) -> None:
        await decide(broker, origin("g", world), [1, 2], "skip")
        assert await list_dead(broker, origin("g", world)) == []
        assert len(await stored(broker)) == 3
        with pytest.raises(UnknownName, match="no dead letter 1"):
            await decide(broker, origin("g", world), [1], "retry")

    play(body)


def test_nothing_is_done_if_one_of_several_is_not_there() -> None:
    async def body(broker: MemoryBroker, world: World) -> None:
        with pytest.raises(UnknownName, match="no dead letter 9"):
            await decide(broker, origin("g", world), [1, 9], "retry")
        assert len(await list_dead(broker, origin("g", world))) == 2
        assert len(await stored(broker)) == 3

    play(body)


def test_a_group_without_a_place_for_dead_letters_has_none() -> None:
    async def body(broker: MemoryBroker, world: World) -> None:
        broker.server.delete_stream("echelon")
        assert await list_dead(broker, origin("g", world)) == []

    play(body)

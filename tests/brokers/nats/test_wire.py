"""The parser in place of nats-py's: every message arrives whole, however the bytes are cut, whatever they contain."""

import asyncio
from itertools import zip_longest
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import ProtocolError

from echelon.brokers.nats.batch import Batch
from echelon.brokers.nats.replies import Many, Replies, Single, milliseconds
from echelon.brokers.nats.wire import Parser, Sink
from tests.brokers.nats.frames import (
    INBOX,
    MANY,
    OTHER,
    SINGLE,
    Client,
    cut,
    end,
    message,
    payloads,
    places,
    reply,
)


@given(st.lists(st.tuples(payloads, st.booleans(), st.booleans()), max_size=20), places, st.lists(st.booleans()))
def test_messages_are_whole_however_the_bytes_are_cut_and_whoever_has_them_parsed(
    given_messages: list[tuple[bytes, bool, bool]], places: list[int], at_once: list[bool]
) -> None:
    data, expected = b"", []
    for number, (payload, has_reply, has_header) in enumerate(given_messages):
        subject = b"a.%d" % number
        answer_to = b"$JS.ACK.x" if has_reply else b""
        header = b"NATS/1.0\r\nA: b\r\n\r\n" if has_header else None
        data += message(subject, payload, reply=answer_to, header=header) + b"PING\r\n" * (number % 3 == 0)
        data += message(b"nobody", payload, sid=8)
        expected.append((subject, answer_to, header or b"", payload))
    client, got = Client(), []
    parser = Parser(client)
    parser.set_sink(7, Sink(lambda *args: got.append(args)))

    async def feed() -> None:
        for part, now in zip_longest(cut(data, places), at_once, fillvalue=b""):
            assert isinstance(part, bytes)
            await parser.parse(parser.parse_messages(part) if now else part)

    asyncio.run(feed())
    assert got == expected
    assert client.seen == ["ping"] * len(range(0, len(given_messages), 3))


# Parts of what comes in: replies to a batched direct get, to another one, to a simple request, and other things.
kinds = st.sampled_from(
    ["many", "many", "many", "many", "headers", "sourced", "odd", "other", "single", "ping", "foreign"]
)


@given(st.lists(st.tuples(kinds, payloads), max_size=60), places)
def test_runs_of_replies_are_taken_as_they_would_be_one_by_one(
    parts: list[tuple[str, bytes]], places: list[int]
) -> None:
    data = b""
    expected: dict[bytes, list[tuple[int, bytes, bytes]]] = {MANY: [], OTHER: []}
    singles = 0
    for sequence, (kind, payload) in enumerate(parts, 1):
        match kind:
            case "ping":
                data += b"PING\r\n"
            case "foreign":
                data += message(b"a.b", payload, header=b"NATS/1.0\r\nA: b\r\n\r\n")
            case "single":
                data += message(INBOX.encode() + SINGLE, payload)
                singles += 1
            case _:
                number = OTHER if kind == "other" else MANY
                stored = {"headers": b"Colour: red\r\nNats-Sequence: 7\r\n", "odd": b"a\rb: c\r\n"}.get(kind, b"")
                source = b"Nats-Stream-Source: O 1 > > a\r\n" if kind == "sourced" else b""
                data += reply(number, sequence, payload, stored=stored, source=source)
                expected[number].append((sequence, stored, payload))
    data += end(OTHER, 3) + end(MANY, 4)

    async def feed() -> tuple[Batch, Batch]:
        parser, replies = Parser(Client()), Replies(INBOX)
        parser.set_sink(7, Sink(replies.take, replies.take_run))
        loop = asyncio.get_running_loop()
        single, many, other = Single(loop.create_future()), Many(loop.create_future()), Many(loop.create_future())
        assert [replies.add(each) for each in (single, many, other)] == [f"{INBOX}{number}" for number in (1, 2, 3)]
        with patch("echelon.brokers.nats.wire.RUN_BYTES", 0):  # Look for runs everywhere.
            for part in cut(data, places):
                await parser.parse(part)
        assert single.future.done() == bool(singles)
        assert many.future.done()
        assert other.future.done()
        return many.future.result()[0], other.future.result()[0]

    batches = dict(zip((MANY, OTHER), asyncio.run(feed()), strict=True))
    for number, batch in batches.items():
        got = list(zip(batch.sequences, batch.headers, batch.data, strict=True))
        assert got == expected[number]
        assert batch.subjects == [b"orders.%d" % sequence for sequence, _, _ in expected[number]]
        assert set(batch.times) <= {1_794_737_128_900}
    assert (batches[MANY].pending, batches[OTHER].pending) == (4, 3)


def test_long_runs_with_something_between_them_are_taken_whole() -> None:
    """Long enough that what interrupts them is found in the middle of a run."""
    data = b""
    for sequence in range(1, 3001):
        data += reply(MANY, sequence, b"%d" % sequence * (sequence % 50))
        if sequence % 700 == 0:
            data += message(INBOX.encode() + SINGLE, b'{"a":1}') + b"PING\r\n"
        if sequence % 1000 == 0:
            data += message(b"a", b"x")
    data += end(MANY, 0)

    async def feed() -> Batch:
        parser, replies = Parser(Client()), Replies(INBOX)
        parser.set_sink(7, Sink(replies.take, replies.take_run))
        loop = asyncio.get_running_loop()
        replies.add(Single(loop.create_future()))
        many = Many(loop.create_future())
        replies.add(many)
        for start in range(0, len(data), 100_000):
            await parser.parse(data[start : start + 100_000])
        assert many.future.done()
        return many.future.result()[0]

    batch = asyncio.run(feed())
    assert batch.sequences == list(range(1, 3001))
    assert batch.data == [b"%d" % sequence * (sequence % 50) for sequence in range(1, 3001)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"2026-11-15T10:05:28.90072325", 1_794_737_128_900),
        (b"2026-11-15T10:05:28.900999999", 1_794_737_128_900),
        (b"2026-11-15T10:05:28", 1_794_737_128_000),
        (b"2026-11-15T10:05:28.1", 1_794_737_128_100),
        (b"2026-11-15T10:05:28.01", 1_794_737_128_010),
        (b"2026-11-15T10:05:28.0019", 1_794_737_128_001),
        (b"1970-01-01T00:00:00", 0),
    ],
)
def test_times_as_the_server_writes_them(text: bytes, expected: int) -> None:
    assert milliseconds([text, text]) == [expected, expected]


def test_control_lines_reach_the_client() -> None:
    client = Client()
    asyncio.run(Parser(client).parse(b"PING\r\n+OK\r\nPONG\r\nINFO {\"a\":1}\r\n-ERR 'Slow Consumer'\r\n"))
    assert client.seen == ["ping", "pong", {"a": 1}, "Slow Consumer"]


@pytest.mark.parametrize("data", [b"HELLO\r\n", b"MSG a 7 x\r\n", b"INFO {\r\n", b"x" * 2_000_000])
def test_what_is_not_the_protocol_is_refused(data: bytes) -> None:
    parser = Parser(Client())
    parser.set_sink(7, Sink(lambda *_: None))
    with pytest.raises(ProtocolError):
        asyncio.run(parser.parse(data))


def test_a_reset_forgets_half_a_message() -> None:
    got: list[bytes] = []
    parser = Parser(Client())
    parser.set_sink(7, Sink(lambda _subject, _reply, _header, payload: got.append(payload)))

    async def feed() -> None:
        await parser.parse(b"MSG a 7 100\r\nhalf of it")
        parser.reset()
        await parser.parse(message(b"a", b"whole"))

    asyncio.run(feed())
    assert got == [b"whole"]


def test_a_large_message_in_small_parts_takes_no_longer_for_each() -> None:
    """What was received in part is put together once, not with every part."""
    got: list[bytes] = []
    parser = Parser(Client())
    parser.set_sink(7, Sink(lambda _subject, _reply, _header, payload: got.append(payload)))
    payload = bytes(range(256)) * 40_000
    data = message(b"a", payload)

    async def feed() -> int:
        joins = 0
        for start in range(0, len(data), 4096):
            before = len(parser._parts)
            await parser.parse(data[start : start + 4096])
            joins += len(parser._parts) <= before
        return joins

    assert asyncio.run(feed()) <= 3
    assert got == [payload]

"""Messages that a consumer delivers: each is taken once and whole, and a batch ends when the server ends it."""

import asyncio
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.brokers.nats.api import JetStream
from echelon.brokers.nats.connection import Connection
from echelon.brokers.nats.deliveries import Deliveries
from echelon.brokers.nats.settings import Settings
from echelon.brokers.nats.stretch import Stretch
from echelon.brokers.nats.wire import Parser, Sink
from echelon.local import NatsServer
from echelon.testing.contract import Sent
from echelon.testing.contract.harness import name
from tests.brokers.nats.frames import Client, cut, message, payloads, places
from tests.brokers.nats.harness import NatsHarness

REQUEST = "_INBOX.x.1"


def delivery(number: int, payload: bytes, *, header: bytes | None, domain: bool = False) -> bytes:
    """A message as the consumer NAME of the stream S delivers it."""
    place = b"hub.AbCdEf." if domain else b""
    token = b".x7" if domain else b""
    ack = b"$JS.ACK.%sS.NAME.1.%d.%d.1794737128900123456.%d%s" % (place, number * 3, number, 10_000 - number, token)
    return message(b"orders.%d" % number, payload, reply=ack, header=header)


def begun(messages: int = 10_000, size: int = 1 << 30) -> tuple[Deliveries, Parser]:
    deliveries, parser = Deliveries("S", "NAME"), Parser(Client())
    parser.set_sink(7, Sink(deliveries.take, deliveries.take_run))
    deliveries.begin(REQUEST, messages, size)
    return deliveries, parser


stored = st.sampled_from([None, None, None, b"", b"Colour: red\r\n", b"a\rb: c\r\n"])


@given(
    st.lists(st.tuples(payloads, stored, st.sampled_from(["", "", "", "", "ping", "foreign"])), max_size=50),
    places,
    st.booleans(),
)
def test_runs_of_deliveries_are_taken_as_they_would_be_one_by_one(
    parts: list[tuple[bytes, bytes | None, str]], places: list[int], domain: bool
) -> None:
    deliveries, parser = begun()
    data = b""
    for number, (payload, lines, between) in enumerate(parts, 1):
        source = b"Nats-Stream-Source: O 1 > > a\r\n" if number % 5 == 0 else b""
        header = None if lines is None else b"NATS/1.0\r\n%s%s\r\n" % (lines, source)
        data += delivery(number, payload, header=header, domain=domain)
        data += {"": b"", "ping": b"PING\r\n", "foreign": message(b"a", payload, sid=8)}[between]
    data += message(b"_INBOX.x.9", b"", header=b"NATS/1.0 503\r\n\r\n")  # About another request.
    data += message(REQUEST.encode(), b"", header=b"NATS/1.0 408 Request Timeout\r\n\r\n")

    async def feed() -> None:
        with patch("echelon.brokers.nats.wire.RUN_BYTES", 0):
            for part in filter(None, cut(data, places)):
                assert not deliveries.is_over.is_set()
                await parser.parse(part)

    asyncio.run(feed())
    assert deliveries.is_over.is_set()
    assert not deliveries.is_lost
    batch = deliveries.batch
    assert batch.data == [payload for payload, _, _ in parts]
    assert batch.headers == [lines or b"" for _, lines, _ in parts]
    assert batch.sequences == [3 * number for number in range(1, len(parts) + 1)]
    assert batch.subjects == [b"orders.%d" % number for number in range(1, len(parts) + 1)]
    assert set(batch.times) <= {1_794_737_128_900}
    assert batch.pending == (10_000 - len(parts) if parts else 0)


def test_long_runs_of_deliveries_are_taken_whole() -> None:
    deliveries, parser = begun(3000)
    data = b""
    for number in range(1, 3001):
        header = b"NATS/1.0\r\nA: b\r\nNats-Stream-Source: O 1 > > a\r\n\r\n" if number % 3 else None
        data += delivery(number, b"%d" % number * (number % 50), header=header)
        data += b"PING\r\n" if number % 900 == 0 else b""

    async def feed() -> None:
        for start in range(0, len(data), 100_000):
            assert not deliveries.is_over.is_set()
            await parser.parse(data[start : start + 100_000])

    asyncio.run(feed())
    assert deliveries.is_over.is_set()
    batch = deliveries.batch
    assert batch.sequences == [3 * number for number in range(1, 3001)]
    assert batch.data == [b"%d" % number * (number % 50) for number in range(1, 3001)]
    assert batch.headers == [b"A: b\r\n" if number % 3 else b"" for number in range(1, 3001)]


@pytest.mark.parametrize("missing", [1, 2, 30, 58])
def test_a_delivery_that_is_missing_is_noticed(missing: int) -> None:
    deliveries, parser = begun()
    numbers = [number for number in range(1, 60) if number != missing]
    asyncio.run(parser.parse(b"".join(delivery(number, b"x", header=None) for number in numbers)))
    assert deliveries.is_lost


@pytest.mark.parametrize("late", [1, 5, 500])
def test_a_delivery_after_the_end_of_a_batch_is_not_added_to_it(late: int) -> None:
    deliveries, parser = begun(3)

    async def feed() -> None:
        await parser.parse(b"".join(delivery(number, b"x", header=None) for number in range(1, 4)))
        assert deliveries.is_over.is_set()
        assert not deliveries.is_lost
        await parser.parse(b"".join(delivery(number, b"late", header=None) for number in range(4, 4 + late)))

    asyncio.run(feed())
    assert deliveries.is_lost
    assert deliveries.batch.data == [b"x"] * 3
    deliveries.begin(REQUEST, 3, 1000)
    assert deliveries.is_over.is_set()


def test_a_batch_whose_bytes_come_out_even_ends_at_once(nats_server: NatsServer) -> None:
    """The server says nothing then; of as many limits as a message has bytes, one comes out even."""
    harness = NatsHarness(nats_server, "computed")

    async def run() -> None:
        stream = await harness.create_stream(name("stream"), 1)
        headers = {"Colour": "red"}
        sent = [Sent("a", b"%d" % n, headers if n % 2 else {}) for n in range(2000)]
        await harness.publish(stream, sent)
        connection = Connection(Settings(nats_server.url, {}), "test")
        await connection.open()
        stretch = Stretch(JetStream(connection), stream.name, "", 1)
        await stretch.open()
        got: list[bytes] = []
        async with asyncio.timeout(20):
            for size in range(800, 1050):
                batch = await stretch.read(1000, size)
                got += batch.data
        await stretch.close()
        await connection.close()
        assert got == [each.data for each in sent[: len(got)]]
        assert len(got) > 1000

    asyncio.run(run())

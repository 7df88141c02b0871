"""A group's log: what is appended, and what is read back."""

import asyncio
import time

import pytest

from echelon.errors import EchelonError, TooLarge, Unreachable
from echelon.testing.contract.harness import Harness, again, append_again, name, scenario


class LogContract:
    """`Log.append`, `bounds`, `read` and `trim`."""

    @scenario
    async def test_appends_are_stored_in_the_order_of_the_calls(self, harness: Harness) -> None:
        payloads = [f"record {n}".encode() for n in range(300)]
        async with harness.connect() as broker:
            log = await broker.create_log(name("group"))
            before = time.time_ns() // 1_000_000
            sequences = await asyncio.gather(*(log.append(payload) for payload in payloads))
            after = time.time_ns() // 1_000_000
            bounds = await log.bounds()
            entries = await log.read(bounds.first, bounds.end)
        assert [entry.data for entry in entries] == payloads
        assert [entry.sequence for entry in entries] == sequences
        assert sequences == sorted(set(sequences))
        times = [entry.time for entry in entries]
        assert times == sorted(times)
        assert before - 2000 <= times[0] <= times[-1] <= after + 2000

    @scenario
    async def test_an_append_is_there_for_others_when_it_returns(self, harness: Harness) -> None:
        group = name("group")
        async with harness.connect() as one, harness.connect() as other:
            log = await one.create_log(group)
            same = await other.log(group)
            for n in range(20):
                sequence = await log.append(f"{n}".encode())
                assert (await same.bounds()).end == sequence + 1
                assert [entry.data for entry in await same.read(sequence, sequence + 1)] == [f"{n}".encode()]

    @scenario
    async def test_members_and_administrators_append_to_one_order(self, harness: Harness) -> None:
        async with harness.connect() as broker:
            log = await broker.create_log(name("group"))
            payloads = [f"{n}".encode() for n in range(20)]
            sequences = [await log.append(data, admin=n % 3 == 0) for n, data in enumerate(payloads)]
            entries = await log.read(sequences[0], sequences[-1] + 1)
        assert [(entry.sequence, entry.data) for entry in entries] == list(zip(sequences, payloads, strict=True))

    @scenario
    async def test_bounds_of_a_log_that_is_empty_and_then_is_not(self, harness: Harness) -> None:
        async with harness.connect() as broker:
            log = await broker.create_log(name("group"))
            empty = await log.bounds()
            assert empty.first == empty.end
            assert await log.read(0, empty.end + 10) == []
            sequences = [await log.append(b"a"), await log.append(b"b")]
            bounds = await log.bounds()
        assert empty.end <= sequences[0]
        assert bounds.first <= sequences[0]
        assert bounds.end == sequences[1] + 1

    @scenario
    async def test_read_gives_what_the_log_holds_of_a_range(self, harness: Harness) -> None:
        async with harness.connect() as broker:
            log = await broker.create_log(name("group"))
            sequences = [await log.append(f"{n}".encode()) for n in range(10)]
            for start, end in [(0, 3), (3, 7), (7, 10), (4, 5), (5, 5)]:
                stop = sequences[end] if end < 10 else sequences[-1] + 1
                entries = await log.read(sequences[start], stop)
                assert [entry.data for entry in entries] == [f"{n}".encode() for n in range(start, end)]
            beyond = await log.read(sequences[8], sequences[-1] + 1000)
            assert [entry.data for entry in beyond] == [b"8", b"9"]
            assert await log.read(sequences[-1] + 1, sequences[-1] + 1000) == []

    @scenario
    async def test_any_bytes_pass_through(self, harness: Harness) -> None:
        payloads = [b"{", b"\xff\xfe\x00", bytes(range(256)), b"", b"x" * 900_000, b"NATS/1.0\r\n\r\n", b'{"a":1}']
        async with harness.connect() as broker:
            log = await broker.create_log(name("group"))
            sequences = [await log.append(payload) for payload in payloads]
            entries = await log.read(sequences[0], sequences[-1] + 1)
        assert [entry.data for entry in entries] == payloads

    @scenario
    async def test_a_record_that_is_too_large_is_refused_and_not_stored(self, harness: Harness) -> None:
        async with harness.connect() as broker:
            log = await broker.create_log(name("group"))
            first = await log.append(b"before")
            with pytest.raises(TooLarge):
                await log.append(b"x" * 9_000_000)
            last = await log.append(b"after")
            entries = await log.read(first, last + 1)
        assert [entry.data for entry in entries] == [b"before", b"after"]

    @scenario
    async def test_trim_takes_what_is_before_and_nothing_else(self, harness: Harness) -> None:
        async with harness.connect() as broker:
            log = await broker.create_log(name("group"))
            other = await broker.create_log(name("group"))
            kept = await other.append(b"kept")
            sequences = [await log.append(f"{n}".encode()) for n in range(10)]
            await log.trim(sequences[4])
            bounds = await log.bounds()
            assert bounds.first == sequences[4]
            assert bounds.end == sequences[-1] + 1
            left = await log.read(0, bounds.end)
            assert [entry.data for entry in left] == [f"{n}".encode() for n in range(4, 10)]
            await log.trim(sequences[2])
            assert await log.bounds() == bounds
            assert [entry.data for entry in await other.read(kept, kept + 1)] == [b"kept"]

    @scenario
    async def test_sequences_go_on_growing_when_all_was_trimmed(self, harness: Harness) -> None:
        async with harness.connect() as broker:
            log = await broker.create_log(name("group"))
            sequences = [await log.append(f"{n}".encode()) for n in range(5)]
            await log.trim(sequences[-1] + 1)
            empty = await log.bounds()
            assert empty.first == empty.end
            assert await log.read(0, sequences[-1] + 100) == []
            again = await log.append(b"again")
            assert again > sequences[-1]
            assert [entry.data for entry in await log.read(0, again + 1)] == [b"again"]

    @scenario
    async def test_while_the_server_is_away_appends_are_unreachable_and_afterwards_they_work(
        self, harness: Harness
    ) -> None:
        async with harness.connect(timeout=2) as broker:
            log = await broker.create_log(name("group"))
            first = await log.append(b"before")
            await harness.stop()
            try:
                lost, bounds = await asyncio.gather(log.append(b"lost"), log.bounds(), return_exceptions=True)
                assert isinstance(lost, Unreachable)
                assert isinstance(bounds, EchelonError)
            finally:
                await harness.start()
            last = await append_again(log, b"after")
            data = [entry.data for entry in await again(lambda: log.read(first, last + 1))]
        # Of an append that was not answered nothing is known.
        assert data[0] == b"before"
        assert data[-1] == b"after"
        assert set(data) <= {b"before", b"lost", b"after"}

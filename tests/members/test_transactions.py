"""Exactly once: what a transaction commits was processed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Self

import pytest
from msgspec import Struct

from echelon.errors import InvalidConfig, Unreachable
from echelon.group.config import Config
from echelon.group.world import Partition, World
from echelon.members.batches import Batches
from echelon.members.counters import Counters
from echelon.members.failures import Failures
from echelon.members.handlers import Handler, understand
from echelon.members.options import Options
from echelon.members.sinks.base import Place
from echelon.members.transactions import Transactor
from echelon.model import Message
from tests.members.waiting import play, until


class Commit(Struct):
    """A transaction whose results are a list."""

    target: list[int]
    committed: list[int]

    async def commit(self, end: int) -> bool:
        self.committed.append(end)
        return True


class ListSink:
    """A sink that keeps positions in a list, and cannot be reached so many times."""

    def __init__(self, away: int = 0) -> None:
        self.committed: list[int] = []
        self.results: list[int] = []
        self.away = away

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        pass

    async def open(self, _place: Place, *, epoch: int, reset: int, position: int, keep: bool) -> int | None:
        assert (epoch, reset, keep) == (7, 0, False)
        if self.away:
            self.away -= 1
            raise Unreachable("the sink is away")
        return position + 1

    @asynccontextmanager
    async def transaction(self, _place: Place, *, epoch: int, begin: int) -> AsyncIterator[Commit]:
        assert (epoch, begin) == (7, self.committed[-1] if self.committed else 1)
        yield Commit(self.results, self.committed)


def transactor(sink: ListSink, handler: Handler, pool: ThreadPoolExecutor) -> Transactor:
    return Transactor(sink, "group", World(identity="g"), Partition("0", 1, 1, epoch=7), understand(handler), pool)


def run_of(first: int, end: int) -> list[Message]:
    return [Message("0", sequence, "s", b"k", (), b"", 0) for sequence in range(first, end)]


def test_a_plain_handler_that_returns_a_coroutine_is_a_failure_and_nothing_is_committed() -> None:
    async def write(message: Message, target: list[int]) -> None:
        target.append(message.sequence)

    def hand_on(message: Message, target: list[int]) -> Awaitable[None]:
        return write(message, target)

    async def body() -> None:
        with ThreadPoolExecutor(1) as pool:
            sink = ListSink()
            with pytest.raises(InvalidConfig, match=r"the handler is a plain function.*async def"):
                await transactor(sink, hand_on, pool).process(run_of(1, 4))
            assert (sink.results, sink.committed) == ([], [])
            await transactor(sink, write, pool).process(run_of(1, 4))
            assert (sink.results, sink.committed) == ([1, 2, 3], [4])

    play(body)


def test_a_sink_that_cannot_be_reached_is_opened_at_last() -> None:
    async def body() -> None:
        with ThreadPoolExecutor(1) as pool:
            sink = ListSink(away=2)
            opened = transactor(sink, lambda message, target: target.append(message), pool)
            await asyncio.wait_for(opened.open_at_last(), 30)
            assert opened.position == 2

    play(body)


@pytest.mark.parametrize("waits", [False, True], ids=["plain", "async"])
def test_nothing_is_committed_past_a_message_whose_handler_others_have_cancelled(waits: bool) -> None:
    async def body() -> None:
        cancelled = {2}

        def write(message: Message, target: list[int]) -> None:
            if message.sequence in cancelled:
                cancelled.remove(message.sequence)
                raise asyncio.CancelledError
            target.append(message.sequence)

        async def write_waiting(message: Message, target: list[int]) -> None:
            write(message, target)

        async def bury(_message: Message, _error: Exception, _attempts: int) -> None:
            raise AssertionError

        with ThreadPoolExecutor(1) as pool:
            sink = ListSink()
            config = Config(streams=(), positions={}, retries=1, backoff=(0.001, 0.001))
            batches = Batches(
                transactor(sink, write_waiting if waits else write, pool).process,
                1,
                options=Options(batch_size=1),
                failures=Failures(config, Counters(), bury, {}),
                deadline=lambda: 1 << 60,
                on_idle=lambda: None,
            )
            await batches.put(run_of(1, 4))
            await until(lambda: not batches.busy)
            assert (sink.results, sink.committed) == ([1, 2, 3], [2, 3, 4])

    play(body)

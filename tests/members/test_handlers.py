"""How handlers of all shapes are understood and called."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import cast

import pytest

from echelon.brokers.memory import MemoryBroker
from echelon.errors import InvalidConfig
from echelon.group.own import Own
from echelon.group.records import Profile
from echelon.members.desk import Desk
from echelon.members.handlers import Handler, in_thread, understand
from echelon.members.options import Options
from tests.members.waiting import play


def plain(message: str) -> object:
    return message


def with_epoch(message: str, epoch: int) -> object:
    return message, epoch


def with_default(message: str, database: str = "mine") -> object:
    return message, database


async def waiting(message: str) -> object:
    return message


async def waiting_with_epoch(message: str, epoch: int) -> object:
    return message, epoch


class Method:
    def handle(self, message: str, epoch: int) -> object:
        return message, epoch

    def __call__(self, message: str) -> object:
        return message


class WaitingMethod:
    async def handle(self, message: str) -> object:
        return message

    async def __call__(self, message: str, epoch: int) -> object:
        return message, epoch


def of_three(message: str, epoch: int, more: int) -> object:
    return message, epoch, more


@pytest.mark.parametrize(
    ("handler", "result"),
    [
        (plain, "m"),
        (with_epoch, ("m", 7)),
        (with_default, ("m", "mine")),
        (lambda message: message, "m"),
        (partial(of_three, more=1), ("m", 7, 1)),
        (Method().handle, ("m", 7)),
        (Method(), "m"),
    ],
)
def test_plain_handlers_get_the_epoch_if_they_need_it(handler: Handler, result: object) -> None:
    call = understand(handler)
    assert not call.waits
    assert call.under(7)("m") == result


@pytest.mark.parametrize(
    ("handler", "result"),
    [
        (waiting, "m"),
        (waiting_with_epoch, ("m", 7)),
        (partial(waiting_with_epoch, epoch=1), ("m", 1)),
        (WaitingMethod().handle, "m"),
        (WaitingMethod(), ("m", 7)),
    ],
)
def test_coroutine_functions_get_the_epoch_if_they_need_it(handler: Handler, result: object) -> None:
    call = understand(handler)
    assert call.waits

    async def body() -> None:
        assert await call.under(7)("m") == result

    play(body)


@pytest.mark.parametrize("handler", [lambda: None, of_three, 7, "text", lambda *, message: message])
def test_what_cannot_take_a_message_is_refused(handler: Callable[..., object]) -> None:
    with pytest.raises(InvalidConfig, match="handler"):
        understand(handler)


def test_a_save_that_returns_a_coroutine_is_refused() -> None:
    async def save(_partition: str) -> bytes:
        return b"kept"

    async def body() -> None:
        async with MemoryBroker("memory://handlers") as broker:
            own = Own("me", Profile("me"), began=0)
            for function, saved in ((save, None), (lambda _: b"kept", b"kept")):
                options = Options(save=cast("Callable[[str], bytes]", function))
                desk = Desk(broker, "group", understand(plain), options, own, lambda: None)
                if saved is None:
                    with pytest.raises(InvalidConfig, match=r"save returns something to be awaited.*plain function"):
                        desk.save("0")
                else:
                    assert desk.save("0") == saved

    play(body)


def test_who_is_cancelled_waits_for_what_runs_in_a_thread() -> None:
    async def body() -> None:
        release, ended = threading.Event(), threading.Event()

        def work(_: object) -> None:
            release.wait(10)
            ended.set()

        with ThreadPoolExecutor(1) as pool:
            waiting = asyncio.ensure_future(in_thread(pool, work, None))
            queued = asyncio.ensure_future(in_thread(pool, lambda _: ended.set(), None))
            await asyncio.sleep(0.01)
            for _ in range(3):
                waiting.cancel()
                queued.cancel()
                await asyncio.sleep(0.01)
            assert not waiting.done()
            assert queued.cancelled(), "it had not begun"
            release.set()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert ended.is_set()

    play(body)


def test_what_a_thread_raises_comes_to_whoever_waits() -> None:
    async def body() -> None:
        with ThreadPoolExecutor(1) as pool:
            assert await in_thread(pool, str.upper, "m") == "M"
            with pytest.raises(ZeroDivisionError):
                await in_thread(pool, lambda given: given // 0, 1)

    play(body)

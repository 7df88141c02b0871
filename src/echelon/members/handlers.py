"""What a user's handler looks like, and how it is called: a plain function or a coroutine function."""

import asyncio
import contextlib
import inspect
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from msgspec import Struct

from echelon.errors import InvalidConfig

Given = TypeVar("Given")
Result = TypeVar("Result")

Handler = Callable[..., object]
"""A handler takes a message and, if it needs a second argument, the epoch. It may be a coroutine function."""


class Call(Struct, frozen=True):
    """How to call a handler. `waits`: it is a coroutine function; `epoch`: it wants the epoch as second argument."""

    handler: Callable[..., Any]
    waits: bool
    epoch: bool

    def under(self, epoch: int) -> Callable[[Any], Any]:
        """The handler as a function of one argument, under this epoch."""
        handler = self.handler
        return (lambda what: handler(what, epoch)) if self.epoch else handler


def understand(handler: Handler) -> Call:
    """How to call this handler. Raises InvalidConfig if it cannot be called with a message."""
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError) as error:
        raise InvalidConfig(
            f"the handler {handler!r} cannot be called", remedy="Give a function of a message"
        ) from error
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    if not positional or len(required) > 2:
        raise InvalidConfig(
            f"the handler {getattr(handler, '__name__', handler)!r} takes {len(required)} arguments",
            remedy="It takes a message, and if it wants to the epoch as second argument",
        )
    waits = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)
    return Call(handler, waits, len(required) == 2)


def check_result(result: object) -> None:
    """Raise InvalidConfig if what a plain handler returned waits to be awaited: then it has done nothing yet."""
    if _unawaited(result):
        raise InvalidConfig(
            "the handler is a plain function, but returns something to be awaited",
            remedy="Make it a coroutine function, with async def",
        )


def check_plain(name: str, result: object) -> None:
    """Raise InvalidConfig if what another function of the user returned waits to be awaited, which nobody does."""
    if _unawaited(result):
        raise InvalidConfig(f"{name} returns something to be awaited", remedy="Make it a plain function, with def")


def _unawaited(result: object) -> bool:
    if inspect.iscoroutine(result):
        result.close()
    return inspect.isawaitable(result)


def is_cancelled() -> bool:
    """Whether the current task was cancelled itself, rather than only what its handler waited for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def own_cancellation(error: asyncio.CancelledError) -> Exception:
    """The failure of a handler that raised this though nobody had cancelled its task."""
    failure = RuntimeError("the handler was cancelled, and not by its member")
    failure.__cause__ = error
    return failure


async def in_thread(pool: Executor, function: Callable[[Given], Result], given: Given) -> Result:
    """Have a thread of the pool call a function.

    Once it has begun nobody can stop it: who is cancelled waits until it has ended, and raises CancelledError then.
    """
    return await ended(pool.submit(function, given))


async def ended(future: "Future[Result]") -> Result:
    """What a call that a thread makes ends with, waited for as `in_thread` does."""
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        while not future.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((asyncio.wrap_future(future),))
        raise

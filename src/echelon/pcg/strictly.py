"""Strict order: one message at a time, and the next only when it is acknowledged."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from msgspec import Struct

from echelon.brokers.nats.pull_message import Pulled
from echelon.errors import Unreachable
from echelon.members.handlers import check_result, ended, in_thread, is_cancelled, own_cancellation
from echelon.model import Message
from echelon.pcg.ledger import Committed, Ledger, Source
from echelon.pcg.session import Session
from echelon.pcg.work import Work

logger = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 0.2
# How long the event loop stands still for a plain handler: to be woken up by its thread takes nearly as long.
_STAND_STILL: Final = 0.0005
# How often not to do so once the handler took longer.
_GO_ON: Final = 32


class Account(Struct, frozen=True):
    """A ledger, what it knows the messages by, and how to learn whether one of them is acknowledged."""

    ledger: Ledger
    source: Source
    is_acknowledged: Callable[[int], Awaitable[bool]]


class Strictly:
    """Has the messages of one session handled one by one. With a ledger, each has its effect exactly once.

    An acknowledgement is not waited for, without a ledger: that the next message comes shows that it was heard.
    """

    def __init__(self, work: Work, account: Account | None = None) -> None:
        self._call = work.call
        self._pool = work.pool
        self._counters = work.counters
        self._translator = work.translator
        self._failures = work.failures()
        self._account = account
        self._taken_over = ""
        self._slow = 0

    async def work(self, session: Session) -> None:
        """Handle messages as they come, as `session.Handling` describes it."""
        while not session.leaving:
            for pulled in await session.take():
                if session.leaving:
                    pulled.nak()
                elif session.done is not None and _comes_again(pulled, session.done):
                    pulled.ack()
                else:
                    await self._take(session, pulled)

    async def _take(self, session: Session, pulled: Pulled) -> None:
        session.under_way[pulled.sequence] = pulled
        if session.done is not None and pulled.sequence == session.done.sequence:
            session.done = None  # It is to be handled again.
        if not session.lease.holds:
            await session.lease.granted()
        session.idle = False
        try:
            handled = await self._settle(session, pulled, self._translator.message(pulled))
            session.idle = False  # What is handled is to be acknowledged, too.
            session.done = pulled
            self._counters.messages += 1
            if self._account is None or not handled:  # What was handled with an account was acknowledged with it.
                await self._acknowledge(session, pulled.ack)
        finally:
            session.idle = True
        del session.under_way[pulled.sequence]

    async def _settle(self, session: Session, pulled: Pulled, message: Message) -> bool:
        """Have a message handled until it is done. Raises the failure of one that failed for good.

        False: it failed, and was set aside.
        """
        attempts = 1
        while (failure := await self._attempt(session, pulled, message)) is not None:
            # Nothing runs meanwhile, so a session that is left need not wait for this.
            session.idle = True
            if session.leaving:
                raise asyncio.CancelledError
            verdict = await self._failures.settle(message, failure, attempts)
            if verdict == "stop":
                raise self._failures.failure or failure
            if verdict == "done":
                return False
            attempts += 1
            await session.lease.granted()
            session.idle = False
        return True

    async def _attempt(self, session: Session, pulled: Pulled, message: Message) -> Exception | None:
        try:
            if self._account is not None:
                await self._account_for(self._account, session, pulled, message)
            elif self._call.waits:
                await self._call.handler(message)
            else:
                result = await self._call_plainly(message)
                if result is not None:
                    check_result(result)
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            return own_cancellation(error)
        except Committed:
            raise  # To try again, or to set the message aside, would hide that a part of its effect is there.
        except Exception as error:  # noqa: BLE001 - whatever a user's handler raises is its failure, not ours
            return error
        return None

    async def _call_plainly(self, message: Message) -> object:
        """Have a thread call the handler; if that is quick, without the event loop's turning meanwhile."""
        if self._slow:
            self._slow -= 1
            return await in_thread(self._pool, self._call.handler, message)
        future: Future[object] = self._pool.submit(self._call.handler, message)
        try:
            return future.result(_STAND_STILL)
        except TimeoutError:
            if future.done():
                return future.result()  # The handler has raised it, or has just ended.
        self._slow = _GO_ON
        return await ended(future)

    async def _account_for(self, account: Account, session: Session, pulled: Pulled, message: Message) -> None:
        async def work(target: Any) -> None:  # noqa: ANN401 - each ledger has its own
            if self._call.waits:
                await self._call.handler(message, target)
            else:
                check_result(await in_thread(self._pool, partial(_call_with, self._call.handler, target), message))

        acknowledge = partial(self._acknowledge, session, pulled.double_ack)
        while True:
            try:
                if self._taken_over != session.pull.pin:
                    await account.ledger.take_over(account.source, account.is_acknowledged)
                    self._taken_over = session.pull.pin
                return await account.ledger.process(account.source, pulled.sequence, work, acknowledge)
            except Unreachable as error:
                # That the database or the broker is away is no failure of the handler.
                logger.warning("message %d is not accounted for yet: %s", pulled.sequence, error)
                await asyncio.sleep(_AGAIN_SECONDS)
                await session.lease.granted()

    async def _acknowledge(self, session: Session, ack: Callable[[], Any]) -> None:
        """Acknowledge a message; who leaves lets the server know before, so that it delivers no other."""
        if session.leaving:
            await session.close()
        if (answer := ack()) is not None:
            await answer


def _comes_again(pulled: Pulled, last: Pulled) -> bool:
    """Whether a message that was handled comes again because the acknowledgement was lost.

    Not so if the consumer was reset to it, for then it is to be handled again. A consumer that is reset counts its
    deliveries from 1 anew, as if this were its first message; so of a first message it cannot be told. Under another
    pin others may have had it meanwhile.
    """
    if pulled.sequence != last.sequence or pulled.number <= last.number or pulled.pin != last.pin:
        return False
    before = last.number - last.deliveries
    return before > 0 and pulled.number - pulled.deliveries == before


def _call_with(handler: Callable[..., object], target: object, message: Message) -> object:
    return handler(message, target)

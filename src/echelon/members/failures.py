"""What becomes of a message whose handler failed: retried with back-off, and then what the group chose."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from echelon.errors import EchelonError, OutOfRange, Unreachable
from echelon.group.config import Config
from echelon.members.counters import Counters
from echelon.model import Message
from echelon.pauses import pause

logger = logging.getLogger(__name__)

Verdict = Literal["retry", "done", "park", "stop"]
"""What becomes of a message that failed: `retry` it, count it as `done`, `park` its key, or `stop` here, so that the
position does not pass it."""


class Failures:
    """Decides for the messages of one partition. `failure` is set once the partition has to stop.

    `bury` writes a dead letter and returns when it is stored.
    """

    def __init__(
        self,
        config: Config,
        counters: Counters,
        bury: Callable[[Message, Exception, int], Awaitable[None]],
        parked: Mapping[str, int],
    ) -> None:
        self.parked = dict(parked)
        """Keys that wait apart, each with the sequence of its first parked message."""
        self.failure: Exception | None = None
        self.final = config.delivery == "at_most_once"
        """Nothing is tried again."""
        self._config = config
        self._counters = counters
        self._bury = bury

    def ended(self, task: asyncio.Task[None]) -> None:
        """A task of the partition has ended. If that was by an error, nobody else would ever hear of it."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.failure = error

    def go_on_at(self, error: OutOfRange) -> int:
        """Where to go on if messages were deleted before they were processed. Raises `error` unless the group does."""
        if self._config.out_of_range == "fail" or error.first <= error.position:
            raise error
        logger.warning("%s; going on at %d", error, error.first)
        return error.first

    async def settle(self, message: Message, error: Exception, attempts: int) -> Verdict:
        """Wait as long as the message's key should, and say what becomes of the message."""
        config = self._config
        where = f"message {message.sequence} of partition {message.partition}"
        if self.final:
            logger.warning("%s failed, and is not tried again: %r", where, error)
            return "done"
        if attempts <= config.retries:
            self._counters.retries += 1
            logger.warning("%s failed, attempt %d: %r", where, attempts, error)
            await self._back_off(attempts)
            return "retry"
        if config.on_failure == "dead_letter":
            return await self._write_dead_letter(message, error, attempts)
        if config.on_failure == "park" and len(self.parked) < config.parked:
            logger.error("%s failed for good, its key is parked: %r", where, error)
            return "park"
        self.failure = error
        return "stop"

    async def _back_off(self, attempts: int) -> None:
        await asyncio.sleep(pause(*self._config.backoff, attempts - 1))

    async def _write_dead_letter(self, message: Message, error: Exception, attempts: int) -> Verdict:
        """Try until it is stored; a broker that refuses it stops the partition."""
        writes = 0
        while True:
            writes += 1
            try:
                await self._bury(message, error, attempts)
            except Unreachable as unreachable:
                logger.warning("a dead letter is not stored yet: %s", unreachable)
                await self._back_off(writes)
            except EchelonError as refusal:
                self.failure = refusal
                return "stop"
            else:
                self._counters.dead_letters += 1
                return "done"

"""The handling of a few messages at a time, in slices of time: how many fit into one is learnt."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Final

from echelon.members.clock import now
from echelon.members.handlers import Call, check_result, in_thread, is_cancelled, own_cancellation
from echelon.model import Message

SLICE: Final = 0.01
"""Seconds of handling after which others get their turn, and it is looked whether to stop."""


class Slices:
    """Calls the handler, under one epoch. Plain handlers run in the pool, all else in the event loop's thread.

    `deadline` is when this instance is fenced: no handler begins after it, nor once `stopped` is set. `on_cancelled`
    is called with the messages that were handled before a coroutine function was cancelled.
    """

    def __init__(
        self,
        call: Call,
        epoch: int,
        *,
        pool: Executor,
        deadline: Callable[[], int],
        on_cancelled: Callable[[Sequence[Message]], None],
    ) -> None:
        self.waits = call.waits
        self.stopped = False
        self._handler = call.under(epoch)
        self._pool = pool
        self._deadline = deadline
        self._on_cancelled = on_cancelled
        self._per_message = SLICE
        self._paced = False

    def fitting(self, count: int) -> int:
        """How many of so many messages fit into a slice; at least one."""
        return max(1, min(count, int(SLICE / max(self._per_message, 1e-7))))

    def are_quick(self, count: int) -> bool:
        """Whether so many messages gain nothing from running side by side."""
        return not self.waits and self._per_message * count < 2 * SLICE

    async def handle(self, messages: Sequence[Message]) -> tuple[int, Exception | None]:
        """Handle messages in order, for about a slice; how many went well, and the failure that ended it."""
        if not self.waits:
            return await in_thread(self._pool, self._handle_plainly, messages)
        handler = self._handler
        until, began = self._until(), time.perf_counter()
        index = 0
        try:
            for message in messages:
                if self.stopped or now() >= until:
                    break
                await handler(message)
                index += 1
        except asyncio.CancelledError as error:
            if not is_cancelled():
                return index, own_cancellation(error)
            self._on_cancelled(messages[:index])
            raise
        except Exception as error:  # noqa: BLE001 - whatever a user's handler raises is its failure, not ours
            return index, error
        self._note_pace(time.perf_counter() - began, index)
        return index, None

    def _handle_plainly(self, messages: Sequence[Message]) -> tuple[int, Exception | None]:
        handler = self._handler
        # The time is taken here: how long it waited for a thread says nothing about the handler.
        until, began = self._until(), time.perf_counter()
        index = 0
        try:
            for message in messages:
                if self.stopped or now() >= until:
                    break
                result = handler(message)
                if result is not None:
                    check_result(result)
                index += 1
        except asyncio.CancelledError as error:
            return index, own_cancellation(error)
        except Exception as error:  # noqa: BLE001 - as above
            return index, error
        self._note_pace(time.perf_counter() - began, index)
        return index, None

    def _note_pace(self, seconds: float, count: int) -> None:
        """Learn how long a message takes; the first measurement is better than none."""
        if count:
            share = 0.25 if self._paced else 1.0
            self._per_message += (seconds / count - self._per_message) * share
            self._paced = True

    def _until(self) -> int:
        """Until when a slice that begins now may begin with messages."""
        return min(self._deadline(), now() + int(SLICE * 1000))

"""What every way of handling messages needs."""

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

from msgspec import Struct

from echelon.group.config import Config
from echelon.members.counters import Counters
from echelon.members.failures import Failures
from echelon.members.handlers import Call
from echelon.model import Message
from echelon.pcg.messages import Translator


class Work(Struct, frozen=True):
    """The handler and what goes with it. `bury` writes a dead letter and returns when it is stored."""

    call: Call
    translator: Translator
    config: Config
    counters: Counters
    bury: Callable[[Message, Exception, int], Awaitable[None]]
    pool: Executor

    def failures(self, on_dead_letter: Callable[[Message], None] = lambda _: None) -> Failures:
        """What decides about messages that failed. `on_dead_letter` is called when one is stored as a dead letter."""

        async def bury(message: Message, error: Exception, attempts: int) -> None:
            await self.bury(message, error, attempts)
            on_dead_letter(message)

        return Failures(self.config, self.counters, bury, {})

"""What the parts of one broker connection share, and how it ends."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any, Final

from echelon.brokers.kafka.admin import Admin
from echelon.brokers.kafka.committed import CommittedOffsets
from echelon.brokers.kafka.feed import Feed
from echelon.brokers.kafka.producer import Sender
from echelon.brokers.kafka.settings import Settings
from echelon.errors import Unreachable

_THREADS: Final = 32


class Connection:
    """The clients of one broker. Must be made in the loop that uses it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.admin = Admin(settings)
        self.committed = CommittedOffsets(settings)
        self.threads = ThreadPoolExecutor(_THREADS, "kafka-reader")
        self._feeds: set[Feed[Any]] = set()
        self._senders: list[Sender] = []
        self._is_open = True

    @cached_property
    def log_sender(self) -> Sender:
        """Sends the records of groups' logs, which must not wait behind data."""
        return self._sender()

    @cached_property
    def data_sender(self) -> Sender:
        """Sends messages."""
        return self._sender()

    @asynccontextmanager
    async def following(self, feed: Feed[Any]) -> AsyncIterator[None]:
        """Keep a feed for as long as something is followed through it, and end it with the connection."""
        self.check_open()
        self._feeds.add(feed)
        try:
            yield
        finally:
            if not feed.is_open:
                self._feeds.discard(feed)

    def check_open(self) -> None:
        """Raise Unreachable if the connection was closed."""
        if not self._is_open:
            raise Unreachable(f"the connection to Kafka at {self.settings.servers} is closed")

    async def close(self) -> None:
        """End everything that was opened through the connection."""
        self._is_open = False
        ending: list[Feed[Any] | Sender] = [*self._feeds, *self._senders]
        for each in ending:
            each.close()
        await asyncio.gather(self.committed.close(), *(asyncio.to_thread(each.join) for each in ending))
        self.threads.shutdown(wait=False, cancel_futures=True)

    def _sender(self) -> Sender:
        self.check_open()
        sender = Sender(self.settings)
        self._senders.append(sender)
        return sender

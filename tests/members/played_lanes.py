"""Lanes around a handler that notes what it does."""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import strategies as st

from echelon.group.config import Config
from echelon.members.counters import Counters
from echelon.members.failures import Failures
from echelon.members.handlers import Handler, understand
from echelon.members.lanes import Lanes
from echelon.members.options import Options
from echelon.model import Message
from tests.members.waiting import until

FAR = 1 << 60
WINDOW = 8
RETRY = Config(streams=(), positions={}, retries=2, backoff=(0.001, 0.002))


def message(sequence: int, key: str) -> Message:
    return Message("0", sequence, "s", key.encode(), (), b"", 0)


class Played:
    """A handler that notes what it does, and lanes around it. Messages fail as often as `failures` says.

    They fail with `failure`, which is an error or a cancellation that nobody asked of the lanes.
    """

    def __init__(
        self,
        *,
        waits: bool = False,
        width: int = 4,
        seconds: Callable[[Message], float] = lambda _: 0.0,
        failures: dict[int, int] | None = None,
        config: Config = RETRY,
        window: int = WINDOW,
        handler: Handler | None = None,
        failure: type[BaseException] = ValueError,
    ) -> None:
        self.begun: dict[bytes | None, list[int]] = defaultdict(list)
        self.done: list[int] = []
        self.most_at_once = 0
        self.broken: list[str] = []
        self.deadline = FAR
        self.idled = 0
        self.buried: list[int] = []
        self.given_up: set[int] = set()
        self.refusals: list[Exception] = []
        self.after_failure: Callable[[], object] = lambda: None
        self._seconds = seconds
        self._failure = failure
        self._fail = dict(failures or {})
        self.running: dict[bytes | None, int] = {}
        self._lock = threading.Lock()
        handler = handler or (self._handle_waiting if waits else self._handle_plain)
        self.pool = ThreadPoolExecutor(width)
        self.failures = Failures(config, Counters(), self._bury, {})
        self.lanes = Lanes(
            understand(handler),
            7,
            1,
            options=Options(lanes=width, buffer=window),
            failures=self.failures,
            pool=self.pool,
            deadline=lambda: self.deadline,
            on_idle=self._idle,
        )

    def _begin(self, message: Message, epoch: int) -> None:
        with self._lock:
            if epoch != 7:
                self.broken.append(f"epoch {epoch}")
            if message.key in self.running:
                self.broken.append(f"{message.sequence} while {self.running[message.key]} runs, of one key")
            self.running[message.key] = message.sequence
            self.begun[message.key].append(message.sequence)
            self.most_at_once = max(self.most_at_once, len(self.running))

    def _end(self, message: Message) -> None:
        with self._lock:
            del self.running[message.key]
            if self._fail.get(message.sequence, 0):
                self._fail[message.sequence] -= 1
                self.after_failure()
                raise self._failure(f"{message.sequence} fails")
            self.done.append(message.sequence)

    def _handle_plain(self, message: Message, epoch: int) -> None:
        self._begin(message, epoch)
        time.sleep(self._seconds(message))
        self._end(message)

    async def _handle_waiting(self, message: Message, epoch: int) -> None:
        self._begin(message, epoch)
        try:
            await asyncio.sleep(self._seconds(message))
        except asyncio.CancelledError:
            self._end(message)
            raise
        self._end(message)

    async def _bury(self, message: Message, _error: Exception, _attempts: int) -> None:
        if self.refusals:
            raise self.refusals.pop()
        self.buried.append(message.sequence)

    def _idle(self) -> None:
        self.idled += 1

    def fence(self) -> None:
        self.deadline = 0

    def check_watermark(self) -> None:
        """Everything before the position is done, and nothing beyond what was put is counted."""
        position = self.lanes.position
        missing = set(range(1, position)) - set(self.done) - set(self.buried) - self.given_up
        assert not missing, f"the position is {position}, and {missing} are not done"

    async def until_idle(self) -> None:
        def is_idle() -> bool:
            self.check_watermark()
            return not self.lanes.in_flight and not self.lanes.busy

        await until(is_idle)


PUTS = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=5), min_size=1, max_size=5)
BOTH = pytest.mark.parametrize("waits", [False, True], ids=["plain", "async"])


def run_of(keys: str, first: int = 1) -> list[Message]:
    """Messages with these keys, one letter each."""
    return [message(sequence, key) for sequence, key in enumerate(keys, first)]

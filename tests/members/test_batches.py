"""Batches: runs of a partition one after the other, taken apart when one fails; fencing, stopping, back-pressure."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from echelon.group.config import Config
from echelon.members.batches import Batches
from echelon.members.counters import Counters
from echelon.members.failures import Failures
from echelon.members.handlers import in_thread
from echelon.members.options import Options
from echelon.model import Message
from tests.members.waiting import play, until

FAR = 1 << 60
WINDOW = 8
RETRY = Config(streams=(), positions={}, retries=2, backoff=(0.001, 0.002))


def run_of(first: int, count: int) -> list[Message]:
    return [Message("0", sequence, "s", b"k", (), b"", 0) for sequence in range(first, first + count)]


async def cancel_its_own() -> None:
    """Wait for what others have cancelled."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


class Played:
    """A handler of batches that notes what it gets. A batch fails with any message that `failures` has left.

    With `cancelled` it does so by waiting for what others have cancelled.
    """

    def __init__(
        self,
        *,
        size: int = 3,
        seconds: float = 0.0,
        failures: dict[int, int] | None = None,
        config: Config = RETRY,
        cancelled: bool = False,
    ) -> None:
        self.runs: list[list[int]] = []
        self.done: list[list[int]] = []
        self.buried: list[int] = []
        self.deadline = FAR
        self.idled = 0
        self.after_failure: Callable[[], None] = lambda: None
        self._seconds = seconds
        self._cancelled = cancelled
        self._fail = dict(failures or {})
        self.failures = Failures(config, Counters(), self._bury, {})
        self.batches = Batches(
            self._process,
            1,
            options=Options(buffer=WINDOW, batch=True, batch_size=size),
            failures=self.failures,
            deadline=lambda: self.deadline,
            on_idle=self._idle,
        )

    async def _process(self, messages: Sequence[Message]) -> None:
        sequences = [message.sequence for message in messages]
        self.runs.append(sequences)
        await asyncio.sleep(self._seconds)
        failing = [sequence for sequence in sequences if self._fail.get(sequence, 0)]
        if failing:
            self._fail[failing[0]] -= 1
            self.after_failure()
            if self._cancelled:
                await cancel_its_own()
            raise ValueError(f"{failing[0]} fails")
        self.done.append(sequences)

    async def _bury(self, message: Message, _error: Exception, _attempts: int) -> None:
        self.buried.append(message.sequence)

    def _idle(self) -> None:
        self.idled += 1

    def fence(self) -> None:
        self.deadline = 0

    def processed(self) -> list[int]:
        return [sequence for run in self.done for sequence in run]

    async def until_idle(self) -> None:
        def is_idle() -> bool:
            assert set(range(1, self.batches.position)) <= {*self.processed(), *self.buried}
            return not self.batches.busy

        await until(is_idle)


@given(
    puts=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    size=st.integers(1, 4),
    failures=st.dictionaries(st.integers(1, 12), st.integers(1, 3), max_size=3),
)
def test_every_message_is_processed_in_order_whatever_fails_now_and_then(
    puts: list[int], size: int, failures: dict[int, int]
) -> None:
    async def body() -> None:
        played = Played(size=size, failures=failures, config=structs.replace(RETRY, retries=4))
        count = 0
        for more in puts:
            await played.batches.put(run_of(count + 1, more))
            assert played.batches.in_flight <= WINDOW
            count += more
        await played.until_idle()
        assert played.processed() == list(range(1, count + 1))
        assert played.batches.position == played.batches.end == count + 1
        assert played.batches.handled == count
        assert all(len(run) <= size for run in played.runs)
        assert played.idled

    play(body)


def test_a_message_that_fails_for_good_holds_the_position_and_nothing_after_it_is_begun() -> None:
    async def body() -> None:
        played = Played(failures={5: 99})
        await played.batches.put(run_of(1, 8))
        await played.until_idle()
        assert played.processed() == [1, 2, 3, 4]
        assert played.batches.position == 5
        assert isinstance(played.failures.failure, ValueError)
        assert max(max(run) for run in played.runs) == 6, "the run that failed was 4 to 6"

    play(body)


def test_a_dead_letter_lets_the_partition_go_on() -> None:
    async def body() -> None:
        played = Played(failures={5: 99}, config=structs.replace(RETRY, on_failure="dead_letter"))
        await played.batches.put(run_of(1, 8))
        await played.until_idle()
        assert played.buried == [5]
        assert played.processed() == [1, 2, 3, 4, 6, 7, 8]
        assert played.batches.position == 9

    play(body)


def test_at_most_once_a_run_that_failed_is_not_begun_again() -> None:
    async def body() -> None:
        played = Played(failures={2: 99}, config=structs.replace(RETRY, delivery="at_most_once"))
        await played.batches.put(run_of(1, 8))
        await until(lambda: not played.batches.busy)
        assert played.runs == [[1, 2, 3], [4, 5, 6], [7, 8]]
        assert played.batches.position == 9

    play(body)


def test_put_waits_while_the_buffer_is_full() -> None:
    async def body() -> None:
        played = Played(seconds=0.05)
        await played.batches.put(run_of(1, WINDOW))
        putting = asyncio.ensure_future(played.batches.put(run_of(WINDOW + 1, 3)))
        await asyncio.sleep(0.01)
        assert not putting.done()
        await putting
        await played.until_idle()
        assert played.batches.position == WINDOW + 4

    play(body)


def test_a_drain_lets_the_run_under_way_end_and_begins_no_other() -> None:
    async def body() -> None:
        played = Played(seconds=0.05)
        await played.batches.put(run_of(1, 8))
        await until(lambda: bool(played.runs))
        played.batches.stop(cancel=False)
        await played.until_idle()
        assert played.runs == played.done == [[1, 2, 3]]
        assert played.batches.position == 4

    play(body)


def test_at_most_once_a_drain_processes_all_that_was_put() -> None:
    async def body() -> None:
        played = Played(seconds=0.01, config=structs.replace(RETRY, delivery="at_most_once"))
        await played.batches.put(run_of(1, 8))
        await until(lambda: bool(played.runs))
        played.batches.stop(cancel=False)
        await played.until_idle()
        assert played.processed() == [1, 2, 3, 4, 5, 6, 7, 8]

    play(body)


def test_a_drain_that_meets_a_failed_run_begins_none_of_its_messages() -> None:
    async def body() -> None:
        played = Played(failures={2: 1})
        played.after_failure = lambda: played.batches.stop(cancel=False)
        await played.batches.put(run_of(1, 8))
        await played.until_idle()
        assert played.runs == [[1, 2, 3]]
        assert played.batches.position == 1

    play(body)


def test_a_drain_does_not_wait_for_a_message_that_is_to_be_retried() -> None:
    async def body() -> None:
        played = Played(failures={2: 2}, config=structs.replace(RETRY, backoff=(60.0, 60.0)))
        await played.batches.put(run_of(1, 3))
        await until(lambda: len(played.runs) == 3)
        await asyncio.sleep(0.01)
        played.batches.stop(cancel=False)
        await until(lambda: not played.batches.busy)
        assert played.batches.position == 2

    play(body)


def test_a_drain_does_not_wait_for_a_message_that_fails_meanwhile() -> None:
    async def body() -> None:
        played = Played(failures={1: 1}, config=structs.replace(RETRY, backoff=(60.0, 60.0)))
        played.after_failure = lambda: played.batches.stop(cancel=False)
        await played.batches.put(run_of(1, 1))
        await until(lambda: not played.batches.busy)
        assert played.runs == [[1]]
        assert played.batches.position == 1
        assert played.failures.failure is None

    play(body)


def test_a_run_whose_handler_others_have_cancelled_has_failed_and_is_tried_again() -> None:
    async def body() -> None:
        played = Played(failures={2: 2}, cancelled=True)
        await played.batches.put(run_of(1, 8))
        await played.until_idle()
        assert played.processed() == list(range(1, 9))
        assert played.batches.position == 9

    play(body)


def test_a_handler_that_others_cancel_for_good_holds_the_position_and_says_so() -> None:
    async def body() -> None:
        played = Played(failures={2: 99}, cancelled=True)
        await played.batches.put(run_of(1, 8))
        await played.until_idle()
        assert played.processed() == [1]
        assert played.batches.position == 2
        assert "was cancelled, and not by its member" in str(played.failures.failure)

    play(body)


def test_a_batch_whose_thread_waited_for_a_cancelled_future_is_tried_again() -> None:
    async def body() -> None:
        calls: list[list[int]] = []

        def handle(messages: Sequence[Message]) -> None:
            calls.append([message.sequence for message in messages])
            if len(calls) == 1:
                future: Future[None] = Future()
                future.cancel()
                future.result()

        with ThreadPoolExecutor(1) as pool:
            played = Played()
            played.batches._process = lambda messages: in_thread(pool, handle, messages)
            await played.batches.put(run_of(1, 1))
            await until(lambda: not played.batches.busy)
        assert calls == [[1], [1]]
        assert played.batches.position == 2

    play(body)


def test_a_run_that_is_cancelled_by_its_member_is_no_failure() -> None:
    async def body() -> None:
        played = Played(seconds=60)
        await played.batches.put(run_of(1, 3))
        await until(lambda: bool(played.runs))
        played.batches.stop(cancel=True)
        await until(lambda: not played.batches.busy)
        assert played.runs == [[1, 2, 3]]
        assert played.batches.position == 1
        assert played.failures.failure is None

    play(body)


def test_what_was_done_of_a_run_that_was_taken_apart_and_stopped_is_counted() -> None:
    async def body() -> None:
        played = Played(failures={3: 99})
        await played.batches.put(run_of(1, 3))
        await played.until_idle()
        assert played.batches.position == 3
        assert played.batches.handled == 2

    play(body)


def test_nothing_begins_while_the_instance_is_fenced_and_all_goes_on_when_it_is_not() -> None:
    async def body() -> None:
        played = Played()
        played.fence()
        await played.batches.put(run_of(1, 5))
        await asyncio.sleep(0.05)
        assert not played.runs
        played.deadline = FAR
        await played.until_idle()
        assert played.processed() == [1, 2, 3, 4, 5]

    play(body)


def test_no_part_of_a_failed_run_begins_while_the_instance_is_fenced() -> None:
    async def body() -> None:
        played = Played(failures={2: 1})
        played.after_failure = played.fence
        await played.batches.put(run_of(1, 5))
        await asyncio.sleep(0.05)
        assert played.runs == [[1, 2, 3]]
        played.deadline = FAR
        await played.until_idle()
        assert played.processed() == [1, 2, 3, 4, 5]

    play(body)


def test_a_plain_handler_that_was_cancelled_still_runs_until_it_ends() -> None:
    async def body() -> None:
        release, pool = threading.Event(), ThreadPoolExecutor(1)
        played = Played()
        played.batches._process = lambda messages: in_thread(pool, lambda _: release.wait(10), messages)
        await played.batches.put(run_of(1, 3))
        await asyncio.sleep(0.02)
        played.batches.stop(cancel=True)
        await asyncio.sleep(0.05)
        assert played.batches.busy, "a thread still runs the handler"
        release.set()
        await until(lambda: not played.batches.busy)
        pool.shutdown()

    play(body)

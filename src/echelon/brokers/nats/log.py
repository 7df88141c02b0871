"""A group's log: the subjects `echelon.log.<group>.member` and `.admin` of the stream `ECHELON`, read together.

The group is there as long as a message is on the subject `echelon.log.<group>`: it is made with the group and
deleted with it, so that neither an empty log nor a record that a latecomer appends to a deleted one misleads.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

from echelon.brokers.nats.api import WRONG_LAST_SEQUENCE, JetStream, Refused, stored
from echelon.brokers.nats.batch import Batch
from echelon.brokers.nats.consumer import OrderedConsumer
from echelon.brokers.nats.replies import milliseconds
from echelon.errors import BrokerError, GroupNotFound, StreamNotFound, Unreachable
from echelon.model import Bounds, Entry

STREAM: Final = "ECHELON"
_ROOT: Final = "echelon.log"
_BATCH: Final = 1024
_BYTES: Final = 4 << 20
_CHECK_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.01


def _subject(group: str) -> str:
    return f"{_ROOT}.{group}"


async def ensure_stream(js: JetStream, replicas: int) -> None:
    """Make the stream for all logs, or see to it that it has at least so many replicas."""
    config: dict[str, Any] = {
        "name": STREAM,
        "description": "The logs of Echelon's groups",
        "subjects": [f"{_ROOT}.*", f"{_ROOT}.*.*"],
        "storage": "file",
        "discard": "new",
        "num_replicas": replicas,
        "allow_direct": True,
    }
    try:
        found = await js.details(STREAM)
    except StreamNotFound:
        if await js.create_stream(config):
            return
        found = await js.details(STREAM)
    if not set(config["subjects"]) <= set(found.config.get("subjects") or ()):
        raise BrokerError(
            f"the stream {STREAM} is not the one for the logs of groups",
            remedy=f"Delete or rename it; it has to take {' and '.join(config['subjects'])}",
        )
    if found.config.get("num_replicas", 1) < replicas:
        await js.update_stream({**found.config, "num_replicas": replicas})


async def groups(js: JetStream) -> list[str]:
    """The names of all groups, sorted."""
    try:
        details = await js.details(STREAM, subjects=f"{_ROOT}.*")
    except StreamNotFound:
        return []
    return sorted(subject.rpartition(".")[2] for subject in details.state.subjects or ())


async def create(js: JetStream, group: str) -> None:
    """Make the log of a group, if it is not there. What was appended to an earlier one after its end is deleted."""
    headers = {"Nats-Expected-Last-Subject-Sequence": "0"}
    reply = await js.connection.answer(await js.connection.ask(_subject(group), headers=headers))
    try:
        sequence = stored(reply, _subject(group))
    except Refused as error:
        if error.number in WRONG_LAST_SEQUENCE:
            return
        raise
    if sequence is None:
        raise Unreachable(f"the stream {STREAM} does not answer")
    await js.purge(STREAM, f"{_subject(group)}.*", before=sequence)


async def delete(js: JetStream, group: str) -> None:
    """Delete a group's log. Raises GroupNotFound."""
    log = NatsLog(js, group)
    await log.check_there()
    await js.purge(STREAM, _subject(group))
    await js.purge(STREAM, f"{_subject(group)}.*")


class NatsLog:
    """A group's log, as `echelon.brokers.base.Log` describes it."""

    def __init__(self, js: JetStream, group: str) -> None:
        self._js = js
        self._group = group
        self._records = f"{_subject(group)}.*"

    async def append(self, data: bytes, *, admin: bool = False) -> int:
        """Store one record and return its sequence once the broker has it for good."""
        subject = f"{_subject(self._group)}.{'admin' if admin else 'member'}"
        appending = await self._js.connection.ask(subject, data)
        # Whether there is a group that the record belongs to is asked at the same time.
        reply, is_there = await asyncio.gather(self._js.connection.answer(appending), self._is_there())
        if not is_there:
            raise self._not_found()
        sequence = stored(reply, subject)
        if sequence is None:
            raise Unreachable(f"the stream {STREAM} does not answer")
        return sequence

    async def bounds(self) -> Bounds:
        """The oldest sequence in the log, and one past the newest."""
        await self.check_there()
        first, last = await asyncio.gather(
            self._js.next(STREAM, 1, self._records), self._js.last(STREAM, self._records)
        )
        if first is None or last is None:
            end = (await self._js.details(STREAM)).state.end
            return Bounds(end, end)
        return Bounds(first.seq, last.seq + 1)

    async def read(self, start: int, end: int) -> list[Entry]:
        """All entries with `start <= sequence < end` that the log holds now."""
        await self.check_there()
        if end - start == 1:
            return await self._one(start)
        entries: list[Entry] = []
        position = start
        while position < end:
            batch = await self._get(position)
            entries += map(Entry, batch.sequences, batch.times, batch.data)
            position = max(position, batch.end)
            if not batch.pending and position < end:
                # The leader may have more than the replica that answered.
                following = await self._js.next(STREAM, position, self._records)
                position = end if following is None else following.seq
                await asyncio.sleep(_PAUSE_SECONDS if following else 0)
        entries = [entry for entry in entries if entry.sequence < end]
        # A replica may still hold a tail that the log has lost. What the leader has, it has with all that is before it.
        while entries and entries[-1:] != await self._one(entries[-1].sequence):
            held = await self.bounds()  # It may also have been trimmed.
            entries = [entry for entry in entries[:-1] if held.first <= entry.sequence < held.end]
        return entries

    async def _one(self, sequence: int) -> list[Entry]:
        """The entry with this sequence, if the leader has it."""
        found = await self._js.next(STREAM, sequence, self._records)
        if found is None or found.seq != sequence:
            return []
        [time] = milliseconds([found.time.encode().rstrip(b"Z")])
        return [Entry(sequence, time, found.data)]

    async def _get(self, start: int) -> Batch:
        body = {"seq": max(start, 1), "batch": _BATCH, "max_bytes": _BYTES, "next_by_subj": self._records}
        try:
            return await self._js.get(STREAM, body)
        except Unreachable:
            # Perhaps only this replica is, and another one will answer.
            await self._js.connection.wait_until_up()
            return await self._js.get(STREAM, body)

    async def follow(self, start: int) -> AsyncGenerator[list[Entry], None]:
        """Entries from `start` on, as they come; never ends by itself."""
        await self._wait_there()
        consumer = OrderedConsumer(self._js, STREAM, self._records, start)
        try:
            while True:
                try:
                    entries = await consumer.take(_CHECK_SECONDS)
                except StreamNotFound:
                    raise self._not_found() from None
                if entries:
                    yield [Entry(entry.sequence, entry.time, entry.data) for entry in entries]
                else:
                    await self._wait_there()
        finally:
            await consumer.close()

    async def trim(self, before: int) -> None:
        """Delete the entries with a sequence below `before`."""
        await self.check_there()
        if before > 1:
            await self._js.purge(STREAM, self._records, before=before)

    async def check_there(self) -> None:
        """Raise GroupNotFound if the group is not there."""
        if not await self._is_there():
            raise self._not_found()

    async def _wait_there(self) -> None:
        """The same, but as long as nobody knows, the group may be there."""
        try:
            await self.check_there()
        except Unreachable:
            self._js.connection.check_open()

    async def _is_there(self) -> bool:
        try:
            return await self._js.last(STREAM, _subject(self._group)) is not None
        except StreamNotFound:
            return False

    def _not_found(self) -> GroupNotFound:
        return GroupNotFound(f"there is no group {self._group}", remedy="List them with: echelon groups")

"""Exactly once back into JetStream: results and position in one atomic batch, into one stream."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Self

import msgspec
from msgspec import Struct

from echelon.brokers.nats.api import WRONG_LAST_SEQUENCE, JetStream, Refused, stored
from echelon.brokers.nats.connection import Connection
from echelon.brokers.nats.replies import Reply
from echelon.brokers.nats.settings import Settings
from echelon.brokers.nats.subjects import covers
from echelon.errors import BrokerError, InvalidConfig, TooLarge, Unreachable
from echelon.keys import matches
from echelon.members.sinks.base import Batch, Place
from echelon.members.sinks.kept import Kept, commit_kept, falls_back, not_reversible, open_kept

_BATCH_ID: Final = "Nats-Batch-Id"
_BATCH_SEQUENCE: Final = "Nats-Batch-Sequence"
_BATCH_COMMIT: Final = "Nats-Batch-Commit"
_BATCH_TOO_LARGE: Final = 10199
# Messages of the batch were lost on the way, or too many other batches are under way: nothing was stored.
_BATCH_GIVEN_UP: Final = 10176
_AGAIN: Final = 0.02
# How many messages with ids are under way at a time; the server drops what it has no room for.
_WINDOW: Final = 500


class Letter(Struct, frozen=True):
    """One message on its way to the stream."""

    subject: str
    data: bytes
    headers: Mapping[str, str]


class Outbox:
    """What handlers send in one batch. It goes out with the commit, and not at all without one."""

    def __init__(self, stream: str, subjects: Sequence[str]) -> None:
        self.letters: list[Letter] = []
        self._stream = stream
        self._subjects = subjects

    def send(self, subject: str, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send a message, from any thread. Raises InvalidConfig if the sink's stream does not take the subject."""
        if not any(matches(each, subject) for each in self._subjects):
            raise InvalidConfig(
                f"the stream {self._stream} does not take {subject}",
                remedy="Send results to the one stream that the sink was given",
            )
        self.letters.append(Letter(subject, data, headers or {}))


class _Position(Struct, frozen=True):
    """The message on a partition's own subject: what is kept, and how many results were ever committed."""

    kept: Kept
    results: int = 0


class _Opened(Struct, frozen=True):
    """An epoch that was opened here, and the sequence of the message with the position."""

    sequence: int
    position: _Position
    reset: int


class NatsSink:
    """A sink in the one `stream` that all results go to, with the options of `NatsBroker`. Handlers get an `Outbox`.

    The stream also holds the positions, as the last message on `echelon.position.<stream>.<group>.<partition>`; its
    readers choose subjects that leave these out. It has to take `echelon.position.<stream>.>`, allow rollups and
    atomic batches (nats-server 2.12), and keep messages until its limits. Where the limits take a position away,
    the partition goes on from its log's position.

    Results and position are one atomic batch, which the server stores if the position is still the one that this
    owner wrote last; so readers see both or neither, and what a former owner has under way is refused. A batch holds
    1,000 messages, unless the server is configured otherwise; more results in one transaction raise TooLarge.

    Without `atomic` each result is published with a message id, made of its number among the partition's results
    since the last reset, and the position after them. This is exactly once only if handlers give the same results in
    the same order when they are given the same messages again, and if a commit that broke off is made up for within
    the stream's duplicate window. Readers may see results whose position is not committed yet, or never will be if
    the group is reset or made anew just then.

    Results that were committed cannot be taken back: a reset to an earlier position has to keep the output.
    """

    def __init__(self, url: str, stream: str, *, atomic: bool = True, **options: object) -> None:
        self._settings = Settings(url, options)
        self._stream = stream
        self._atomic = atomic
        self._prefix = f"echelon.position.{stream}"
        self._epochs: dict[str, _Opened] = {}

    async def __aenter__(self) -> Self:
        """Connect, and check the stream. Raises Unreachable, Denied, StreamNotFound, InvalidConfig."""
        self._connection = Connection(self._settings, "sink")
        await self._connection.open()
        self._js = JetStream(self._connection)
        try:
            config = (await self._js.details(self._stream)).config
            self._check(config)
        except BaseException:
            await self._connection.close()
            raise
        self._subjects: list[str] = config["subjects"]
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._epochs.clear()
        await self._connection.close()

    async def open(self, place: Place, *, epoch: int, reset: int, position: int, keep: bool) -> int | None:
        """Write a new owner's epoch, and return where it goes on, as `Sink.open` describes it."""
        self._epochs.pop(place.partition, None)
        subject = self._subject(place)
        while True:
            sequence, before = await self._read(subject)
            kept = before.kept if before is not None else None
            after = open_kept(kept, place, epoch=epoch, reset=reset, position=position)
            if after is None:
                return None
            if falls_back(kept, after) and not keep:
                raise not_reversible(place, after.position)
            new = _Position(after, before.results if before is not None else 0)
            written = await self._write([], _letter(subject, new, sequence))
            if written is not None:
                self._epochs[place.partition] = _Opened(written, new, reset)
                return after.position

    @asynccontextmanager
    async def transaction(self, place: Place, *, epoch: int, begin: int) -> AsyncGenerator[Batch[Outbox], None]:
        """Begin a batch. Nothing is sent before the commit."""
        outbox = Outbox(self._stream, self._subjects)
        yield Batch(outbox, partial(self._commit, outbox, place, epoch, begin))

    async def _commit(self, outbox: Outbox, place: Place, epoch: int, begin: int, end: int) -> bool:
        opened = self._epochs.get(place.partition)
        if opened is None:
            return False
        after = commit_kept(opened.position.kept, place, epoch=epoch, begin=begin, end=end)
        if after is None:
            return False
        # Until there is an answer, nobody knows where the sink stands. Only opening it again tells.
        del self._epochs[place.partition]
        letters, number = outbox.letters, opened.position.results
        new = _Position(after, number + len(letters))
        if not self._atomic:
            await self._publish_with_ids(letters, f"{place.identity}-{place.partition}-{opened.reset}", number)
            letters = []
        written = await self._write(letters, _letter(self._subject(place), new, opened.sequence))
        if written is not None:
            self._epochs.setdefault(place.partition, _Opened(written, new, opened.reset))
        return written is not None

    async def _write(self, letters: Sequence[Letter], last: Letter) -> int | None:
        """Store all or nothing, and return the sequence of the last message. None: somebody else was faster."""
        deadline = asyncio.get_running_loop().time() + self._settings.timeout
        while True:
            try:
                return self._stored(await self._publish_batch(letters, last), last.subject)
            except Refused as error:
                if error.number in WRONG_LAST_SEQUENCE:
                    return None
                if error.number == _BATCH_TOO_LARGE:
                    raise TooLarge(
                        f"{len(letters)} results in one transaction are too many: {error.what}",
                        remedy="Send fewer for each message, or process fewer messages at a time",
                    ) from error
                if error.number != _BATCH_GIVEN_UP:
                    raise
                if asyncio.get_running_loop().time() > deadline:
                    raise Unreachable(error.what) from error
            await asyncio.sleep(_AGAIN)

    async def _publish_batch(self, letters: Sequence[Letter], last: Letter) -> Reply:
        """Publish the messages as one batch; what the server says to the last one is said of all."""
        headers = [dict[str, str]()]
        if letters:
            batch = uuid.uuid4().hex
            headers = [{_BATCH_ID: batch, _BATCH_SEQUENCE: str(n + 1)} for n in range(len(letters) + 1)]
            headers[-1][_BATCH_COMMIT] = "1"
        for letter, added in zip(letters, headers, strict=False):
            await self._connection.publish(letter.subject, letter.data, headers={**letter.headers, **added})
        return await self._connection.answer(
            await self._connection.ask(last.subject, last.data, headers={**last.headers, **headers[-1]})
        )

    async def _publish_with_ids(self, letters: Sequence[Letter], prefix: str, number: int) -> None:
        """Publish each message by itself, in order. The server drops those whose id it has seen of late."""
        for first in range(0, len(letters), _WINDOW):
            some = letters[first : first + _WINDOW]
            asked = []
            for own, letter in enumerate(some, number + first):
                headers = {**letter.headers, "Nats-Msg-Id": f"{prefix}-{own}"}
                asked.append(await self._connection.ask(letter.subject, letter.data, headers=headers))
            answers = await asyncio.gather(*map(self._connection.answer, asked), return_exceptions=True)
            for letter, answer in zip(some, answers, strict=True):
                if isinstance(answer, BaseException):
                    raise answer
                self._stored(answer, letter.subject)

    def _stored(self, reply: Reply, subject: str) -> int:
        sequence = stored(reply, subject)
        if sequence is None:
            raise Unreachable(f"the stream {self._stream} does not answer")
        return sequence

    async def _read(self, subject: str) -> tuple[int, _Position | None]:
        """The message on a partition's subject, as the stream's leader has it, and its sequence; or 0 and None."""
        found = await self._js.last(self._stream, subject)
        if found is None:
            return 0, None
        try:
            return found.seq, msgspec.json.decode(found.data, type=_Position)
        except msgspec.DecodeError as error:
            raise BrokerError(f"the position on {subject} cannot be read: {error}") from None

    def _subject(self, place: Place) -> str:
        # The name of a topic may hold dots, and only that of a topic.
        return f"{self._prefix}.{place.group}.{place.partition.replace('.', '%2E')}"

    def _check(self, config: Mapping[str, Any]) -> None:
        """Raise InvalidConfig unless the stream can hold positions beside the results."""
        needs = {
            f"take {self._prefix}.>": any(covers(each, f"{self._prefix}.>") for each in config.get("subjects") or ()),
            "allow rollups (--allow-rollup, not --deny-purge)": config.get("allow_rollup_hdrs")
            and not config.get("deny_purge"),
            "keep messages until its limits (--retention limits)": config.get("retention") == "limits",
            "allow atomic batches (--allow-batch), or the sink has to do without `atomic`": config.get("allow_atomic")
            or not self._atomic,
        }
        if missing := [what for what, is_so in needs.items() if not is_so]:
            raise InvalidConfig(
                f"the stream {self._stream} is not fit for an exactly-once sink",
                remedy=f"It has to {'; to '.join(missing)}",
            )


def _letter(subject: str, position: _Position, sequence: int) -> Letter:
    """A message that takes the place of the one with this sequence, and is refused if that is not the last any more."""
    headers = {"Nats-Expected-Last-Subject-Sequence": str(sequence), "Nats-Rollup": "sub"}
    return Letter(subject, msgspec.json.encode(position), headers)

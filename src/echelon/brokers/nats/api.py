"""JetStream's API: requests in JSON under a prefix (`$JS.API`, a domain's, or one of the account's own)."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct, field

from echelon.brokers.nats.batch import Batch
from echelon.brokers.nats.connection import Connection
from echelon.brokers.nats.replies import Reply
from echelon.errors import BrokerError, Denied, StorageFull, StreamNotFound, TooLarge, Unreachable

T = TypeVar("T")

NO_RESPONDERS: Final = 503
_NOT_ENABLED: Final = frozenset({10039, 10076})
_STREAM_NOT_FOUND: Final = 10059
_MESSAGE_NOT_FOUND: Final = 10037
_CONSUMER_NOT_FOUND: Final = 10014
_STREAM_NAME_IN_USE: Final = 10058
WRONG_LAST_SEQUENCE: Final = frozenset({10071, 10164})
_FULL: Final = frozenset({10002, 10023, 10028, 10047, 10077})
_TOO_LARGE: Final = frozenset({10054, 10097})
_AWAY: Final = frozenset({10008, 10009})


class ApiError(Struct):
    """What the server answers instead of a result."""

    description: str = ""
    err_code: int = 0
    code: int = 0


class _Answer(Struct):
    error: ApiError | None = None


class Ack(Struct):
    """The answer to a message that was published to a stream."""

    error: ApiError | None = None
    stream: str = ""
    seq: int = 0


class State(Struct):
    """What a stream holds. `subjects` has the number of messages of each, if they were asked for."""

    first_seq: int
    last_seq: int
    messages: int = 0
    subjects: Mapping[str, int] | None = None

    @property
    def first(self) -> int:
        """The oldest sequence; of an empty stream, the next one."""
        return self.first_seq if self.messages else self.last_seq + 1

    @property
    def end(self) -> int:
        """One past the newest sequence."""
        return self.last_seq + 1


class Details(Struct):
    """A stream: its configuration as JSON has it, when it was made, and what it holds."""

    config: dict[str, Any]
    created: str
    state: State


class _Names(Struct):
    total: int = 0
    streams: list[str] | None = None


class _Floor(Struct):
    stream_seq: int = 0


class Consumer(Struct):
    """A consumer, as far as it matters here."""

    ack_floor: _Floor = field(default_factory=_Floor)


class Stored(Struct):
    """A message as the leader of its stream gives it. `time` is as JSON has it."""

    seq: int
    time: str
    data: bytes = b""


class _Found(Struct):
    message: Stored


class Refused(BrokerError):
    """The server answered with an error; `number` is JetStream's for it."""

    def __init__(self, what: str, number: int) -> None:
        super().__init__(what)
        self.number = number


class JetStream:
    """JetStream's API over one connection. Besides what is named, all raise Unreachable, Denied, BrokerError."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.prefix = connection.settings.prefix

    async def check_enabled(self) -> None:
        """Raise BrokerError unless there is a JetStream to talk to."""
        try:
            await self._call("INFO", None, _Answer)
        except Denied:
            return  # It is there, but does not tell everybody.
        except Unreachable:
            if self.connection.has_jetstream and self.prefix == "$JS.API":
                raise  # It is about to start.
            self.connection.check_open()
            raise self._not_enabled() from None

    async def details(self, stream: str, *, subjects: str = "") -> Details:
        """A stream as its leader has it, with its subjects that match. Raises StreamNotFound."""
        body = {"subjects_filter": subjects} if subjects else None
        return await self._call(f"STREAM.INFO.{stream}", body, Details, stream=stream)

    async def streams(self, *, subject: str = "") -> list[str]:
        """The names of all streams, or of those that take a subject."""
        names: list[str] = []
        while True:
            body = {"offset": len(names), **({"subject": subject} if subject else {})}
            page = await self._call("STREAM.NAMES", body, _Names)
            names += page.streams or []
            if not page.streams or len(names) >= page.total:
                return names

    async def create_stream(self, config: Mapping[str, Any]) -> Details | None:
        """Make a stream, or find an equal one; None if there is one of that name that is not equal."""
        try:
            return await self._call(f"STREAM.CREATE.{config['name']}", config, Details)
        except Refused as error:
            if error.number == _STREAM_NAME_IN_USE:
                return None
            raise

    async def update_stream(self, config: Mapping[str, Any]) -> None:
        """Change a stream's configuration."""
        await self._call(f"STREAM.UPDATE.{config['name']}", config, _Answer)

    async def delete_stream(self, stream: str) -> None:
        """Delete a stream. Raises StreamNotFound."""
        await self._call(f"STREAM.DELETE.{stream}", None, _Answer, stream=stream)

    async def purge(self, stream: str, subject: str, before: int = 0) -> None:
        """Delete a subject's messages, or those with a sequence below `before`. Raises StreamNotFound."""
        body = {"filter": subject, **({"seq": before} if before else {})}
        await self._call(f"STREAM.PURGE.{stream}", body, _Answer, stream=stream)

    async def next(self, stream: str, start: int, subject: str) -> Stored | None:
        """The first message from `start` on that the leader has. Raises StreamNotFound."""
        return await self._find(stream, {"seq": max(start, 1), "next_by_subj": subject or ">"})

    async def last(self, stream: str, subject: str) -> Stored | None:
        """The last message on a subject that the leader has. Raises StreamNotFound."""
        return await self._find(stream, {"last_by_subj": subject})

    async def create_consumer(self, stream: str, config: Mapping[str, Any]) -> None:
        """Make a consumer. Raises StreamNotFound."""
        only = f".{config['filter_subject']}" if config.get("filter_subject") else ""
        what = f"CONSUMER.CREATE.{stream}.{config['name']}{only}"
        await self._call(what, {"stream_name": stream, "config": config}, _Answer, stream=stream)

    async def consumer(self, stream: str, name: str) -> Consumer | None:
        """A consumer, if it is there. Raises StreamNotFound."""
        try:
            return await self._call(f"CONSUMER.INFO.{stream}.{name}", None, Consumer, stream=stream)
        except Refused as error:
            if error.number == _CONSUMER_NOT_FOUND:
                return None
            raise

    async def get(self, stream: str, body: Mapping[str, object]) -> Batch:
        """Messages by a batched direct get, from any replica. Raises StreamNotFound."""
        subject = f"{self.prefix}.DIRECT.GET.{stream}"
        batch, reply = await self.connection.request_many(subject, msgspec.json.encode(body))
        code, words = reply.status
        if code in {204, 404}:
            return batch
        if code == NO_RESPONDERS:
            details = await self.details(stream)
            if not details.config.get("allow_direct"):
                raise BrokerError(
                    f"the stream {stream} does not answer direct gets",
                    remedy=f"Allow them: nats stream edit {stream} --allow-direct",
                )
            raise Unreachable(f"no replica of the stream {stream} answers")
        raise BrokerError(f"the server did not understand a direct get from {stream}: {code} {words}")

    async def _find(self, stream: str, body: Mapping[str, object]) -> Stored | None:
        try:
            return (await self._call(f"STREAM.MSG.GET.{stream}", body, _Found, stream=stream)).message
        except Refused as error:
            if error.number == _MESSAGE_NOT_FOUND:
                return None
            raise

    async def _call(self, what: str, body: object, answer: type[T], *, stream: str = "") -> T:
        payload = msgspec.json.encode(body) if body is not None else b""
        reply = await self.connection.request(f"{self.prefix}.{what}", payload)
        if reply.status[0] == NO_RESPONDERS:
            raise Unreachable(f"JetStream does not answer at {self.connection.settings.place}")
        try:
            error = msgspec.json.decode(reply.payload, type=_Answer).error
            if error is None:
                return msgspec.json.decode(reply.payload, type=answer)
        except msgspec.DecodeError as wrong:
            raise BrokerError(f"JetStream's answer to {what} cannot be read: {wrong}") from None
        if error.err_code == _STREAM_NOT_FOUND and stream:
            raise StreamNotFound(f"there is no stream {stream}", remedy="Check its name, the account and the domain")
        if error.err_code in _NOT_ENABLED:
            raise self._not_enabled()
        raise _explain(error, f"JetStream refused {what}")

    def _not_enabled(self) -> BrokerError:
        settings = self.connection.settings
        under = "" if settings.prefix == "$JS.API" else f" under {settings.prefix}"
        return BrokerError(
            f"there is no JetStream{under} at {settings.place}",
            remedy="Start the server with -js, turn JetStream on for the account, or correct domain or api_prefix",
        )


def stored(reply: Reply, subject: str) -> int | None:
    """The sequence of a published message; None if no stream took it. Raises StorageFull, TooLarge, BrokerError."""
    if reply.status[0] == NO_RESPONDERS:
        return None
    try:
        ack = msgspec.json.decode(reply.payload, type=Ack)
    except msgspec.DecodeError:
        ack = Ack(error=ApiError("somebody else answered"))
    if ack.error is None:
        return ack.seq
    raise _explain(ack.error, f"a message for {subject} was not stored")


def _explain(error: ApiError, what: str) -> BrokerError:
    words = f"{what}: {error.description}"
    if error.err_code in _FULL:
        return StorageFull(words, remedy="Make room on the server, or raise the limit of the stream or the account")
    if error.err_code in _TOO_LARGE:
        return TooLarge(words, remedy="Send less, or raise max_msg_size of the stream")
    if error.err_code in _AWAY:
        return Unreachable(words, remedy="Wait until the servers have a leader again")
    return Refused(words, error.err_code)

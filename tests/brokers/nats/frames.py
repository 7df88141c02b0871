"""Bytes as a nats-server sends them, and payloads that look like more of them."""

from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

INBOX = "_INBOX.abcdefghijklmnopqrstuv."
SINGLE, MANY, OTHER = b"1", b"2", b"3"


class Client:
    """Notes what the parser passes on to nats-py's client."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    async def _process_ping(self) -> None:
        self.seen.append("ping")

    async def _process_pong(self) -> None:
        self.seen.append("pong")

    async def _process_info(self, info: dict[str, Any]) -> None:
        self.seen.append(info)

    async def _process_err(self, err_msg: str) -> None:
        self.seen.append(err_msg)


def message(subject: bytes, payload: bytes, *, reply: bytes = b"", header: bytes | None = None, sid: int = 7) -> bytes:
    words = [subject, b"%d" % sid, *([reply] if reply else [])]
    if header is None:
        return b"MSG %s %d\r\n%s\r\n" % (b" ".join(words), len(payload), payload)
    sizes = b"%d %d" % (len(header), len(header) + len(payload))
    return b"HMSG %s %s\r\n%s%s\r\n" % (b" ".join(words), sizes, header, payload)


def reply(number: bytes, sequence: int, payload: bytes, *, stored: bytes = b"", source: bytes = b"") -> bytes:
    """A message in answer to a batched direct get, as the server writes it."""
    header = (
        b"NATS/1.0\r\n%s%sNats-Stream: S\r\nNats-Subject: orders.%d\r\nNats-Sequence: %d\r\n"
        b"Nats-Time-Stamp: 2026-11-15T10:05:28.9Z\r\nNats-Num-Pending: 5\r\nNats-Last-Sequence: %d\r\n\r\n"
    ) % (stored, source, sequence, sequence, sequence - 1)
    return message(INBOX.encode() + number, payload, header=header)


def end(number: bytes, pending: int) -> bytes:
    header = b"NATS/1.0 204 EOB\r\nNats-Num-Pending: %d\r\nNats-Last-Sequence: 9\r\n\r\n" % pending
    return message(INBOX.encode() + number, b"", header=header)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:stop] for start, stop in pairwise(bounds)]


# What a payload might hold to look like something else.
TRICKS = [
    b"", b"\r\n", b"\r\nPING\r\n", b"\r\n\r\n", b"HMSG x 7 10 20\r\n", b"MSG a 7 1\r\nx\r\n", b"-ERR 'no'\r\n",
    b"\r\n" + reply(MANY, 99, b"forged"), b"\r\n" + reply(MANY, 99, b"forged")[:-2], b"\r\n" + end(MANY, 0),
    reply(MANY, 99, b"x")[:40], b"\r\nHMSG " + INBOX.encode() + b"2 7 ", bytes(range(256)),
    b"\r\nMSG a 7 $JS.ACK.S.NAME.1.5.5.1794737128900123456.7 3\r\nabc", b" 7 $JS.ACK.S.NAME.1.", b".NAME.1.\r\n",
]  # fmt: skip
payloads = st.one_of(st.sampled_from(TRICKS), st.binary(max_size=300), st.just(b"p" * 150))
places = st.lists(st.integers(0, 1 << 30), max_size=12)

"""The key-value buckets that the groups' configurations are in, as all NATS clients keep them: a stream each."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from msgspec import Struct

from echelon.brokers.nats.api import WRONG_LAST_SEQUENCE, JetStream, Refused, stored
from echelon.brokers.nats.consumer import OrderedConsumer
from echelon.errors import StreamNotFound, Unreachable
from echelon.pcg.config import Kind

_DELETED: Final = {"KV-Operation": "DEL"}
_DUPLICATES: Final = 120_000_000_000


class Entry(Struct, frozen=True):
    """What a key holds, and the revision to name when it is replaced. A key that was deleted holds nothing."""

    data: bytes
    revision: int


class Bucket:
    """One of the two buckets. All raise Unreachable, Denied."""

    def __init__(self, js: JetStream, kind: Kind) -> None:
        self.kind = kind
        self._js = js
        self._stream = f"KV_{kind}-consumer-groups"
        self._root = f"$KV.{kind}-consumer-groups."
        # Through a domain or an import, the bucket is reached under the API's prefix only.
        self._writing = self._root if js.prefix == "$JS.API" else f"{js.prefix}.{self._root}"

    async def ensure(self, replicas: int) -> None:
        """Make the bucket, if it is not there."""
        config = {
            "name": self._stream,
            "subjects": [f"{self._root}>"],
            "max_msgs_per_subject": 1,
            "storage": "file",
            "discard": "new",
            "num_replicas": replicas,
            "duplicate_window": _DUPLICATES,
            "deny_delete": True,
            "allow_rollup_hdrs": True,
            "allow_direct": True,
        }
        try:
            await self._js.details(self._stream)
        except StreamNotFound:
            await self._js.create_stream(config)

    async def get(self, key: str) -> Entry | None:
        """What a key holds; None if there is no such key, or no bucket. Deleted and purged are the same."""
        try:
            found = await self._js.last(self._stream, f"{self._root}{key}")
        except StreamNotFound:
            return None
        return Entry(found.data, found.seq) if found is not None and found.data else None

    async def revision(self, key: str) -> int:
        """The revision of a key, be it deleted or not; 0 if it never was there."""
        found = await self._js.last(self._stream, f"{self._root}{key}")
        return 0 if found is None else found.seq

    async def put(self, key: str, data: bytes, revision: int) -> bool:
        """Replace what the key held at that revision; False if it was replaced meanwhile."""
        headers = {"Nats-Expected-Last-Subject-Sequence": str(revision), **({} if data else _DELETED)}
        subject = f"{self._writing}{key}"
        connection = self._js.connection
        try:
            sequence = stored(await connection.answer(await connection.ask(subject, data, headers=headers)), subject)
        except Refused as error:
            if error.number in WRONG_LAST_SEQUENCE:
                return False
            raise
        if sequence is None:
            raise Unreachable(f"the bucket {self._stream.removeprefix('KV_')} does not answer")
        return True

    async def delete(self, key: str, revision: int) -> bool:
        """Delete a key that has that revision; False if it was replaced meanwhile."""
        return await self.put(key, b"", revision)

    async def keys(self) -> list[str]:
        """All keys that hold something, sorted."""
        try:
            details = await self._js.details(self._stream, subjects=f"{self._root}>")
        except StreamNotFound:
            return []
        keys = sorted(subject.removeprefix(self._root) for subject in details.state.subjects or ())
        return [key for key in keys if await self.get(key) is not None]

    @asynccontextmanager
    async def watch(self, key: str, after: int) -> AsyncGenerator[OrderedConsumer, None]:
        """A consumer that delivers whenever the key changes after that revision."""
        consumer = OrderedConsumer(self._js, self._stream, f"{self._root}{key}", after + 1)
        try:
            yield consumer
        finally:
            await consumer.close()

"""A real nats-server under the contract suite, with streams that are partitioned in one of the three ways."""

import asyncio
import ssl
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import nats

from echelon.brokers.nats import NatsBroker
from echelon.group.config import Partitioning, Stream
from echelon.keys import TokensKey
from echelon.local import NatsServer
from echelon.testing.contract import Sent
from tests.nats_security import NatsSecurity


async def call(url: str, what: str, body: object = None, **options: object) -> dict[str, Any]:
    """One request to JetStream's API, by nats-py alone. Fails if it is answered with an error."""
    client = await nats.connect(url, **cast(dict[str, Any], options))
    try:
        reply = await client.request(f"$JS.API.{what}", msgspec.json.encode(body) if body else b"", timeout=10)
    finally:
        await client.close()
    answer = msgspec.json.decode(reply.data, type=dict[str, Any])
    assert "error" not in answer, answer
    return answer


async def make_stream(url: str, name: str, subjects: Sequence[str], **config: object) -> dict[str, Any]:
    """A stream that answers direct gets."""
    return await call(
        url, f"STREAM.CREATE.{name}", {"name": name, "subjects": subjects, "allow_direct": True, **config}
    )


def options_of(security: NatsSecurity) -> dict[str, object]:
    """What a broker is to be told."""
    given = {
        "user": security.user,
        "password": security.password,
        "token": security.token,
        "nkey": security.nkey_seed,
        "creds": security.creds,
        "tls_ca": security.ca,
        "tls_cert": security.certificate,
        "tls_key": security.key,
    }
    return {name: value for name, value in given.items() if value is not None}


def client_options(security: NatsSecurity) -> dict[str, Any]:
    """The same for nats-py."""
    given = {
        "user": security.user,
        "password": security.password,
        "token": security.token,
        "nkeys_seed": security.nkey_seed and str(security.nkey_seed),
        "user_credentials": security.creds and str(security.creds),
    }
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if security.ca is not None:
        options["tls"] = ssl.create_default_context(cafile=security.ca)
        if security.certificate:
            options["tls"].load_cert_chain(security.certificate, security.key)
    return options


class NatsHarness:
    """Streams take `<name>.<key>`; the key is the second token. `security` is what the server wants of clients."""

    def __init__(self, server: NatsServer, partitioning: Partitioning, security: NatsSecurity | None = None) -> None:
        self.server = server
        self.url = server.url
        self.partitioning = partitioning
        self.security = security or NatsSecurity("")

    def connect(self, *, timeout: float = 5.0) -> NatsBroker:
        return NatsBroker(self.url, timeout=timeout, **options_of(self.security))

    async def create_stream(self, name: str, partitions: int) -> Stream:
        config: dict[str, Any] = {}
        if self.partitioning == "token":
            dest = f"{{{{Partition({partitions},1)}}}}.{name}.{{{{Wildcard(1)}}}}"
            config["subject_transform"] = {"src": f"{name}.*", "dest": dest}
        subjects = [f"{name}.*"]
        await self.call(f"STREAM.CREATE.{name}", {"name": name, "subjects": subjects, "allow_direct": True, **config})
        return Stream(name, partitions, TokensKey(f"{name}.*", (1,)), self.partitioning)

    async def delete_stream(self, stream: Stream) -> None:
        await self.call(f"STREAM.DELETE.{stream.name}")

    async def publish(self, stream: Stream, messages: Sequence[Sent]) -> None:
        client = await nats.connect(self.url, **client_options(self.security))
        try:
            js = client.jetstream(timeout=30, publish_async_max_pending=10_000)
            for start in range(0, len(messages), 1000):
                acks = [
                    await js.publish_async(self.subject(stream, each.key), each.data, headers=each.headers or None)
                    for each in messages[start : start + 1000]
                ]
                await asyncio.gather(*acks)
        finally:
            await client.close()

    async def truncate(self, group: str, stream: Stream, partition: int, before: int) -> None:
        name = f"ECHELON-{group}" if stream.partitioning == "derived" else stream.name
        await self.call(f"STREAM.PURGE.{name}", {"seq": before})

    async def call(self, what: str, body: object = None) -> None:
        await call(self.url, what, body, **client_options(self.security))

    def subject(self, stream: Stream, key: str) -> str:
        return f"{stream.name}.{key}"

    async def stop(self) -> None:
        await asyncio.to_thread(self.server.stop)

    async def start(self) -> None:
        await asyncio.to_thread(self.server.start)

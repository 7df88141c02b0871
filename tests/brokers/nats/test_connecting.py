"""Connecting to real servers: each way of proving who one is, and what is said when it does not work."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from nats import errors

from echelon.brokers.nats import NatsBroker
from echelon.brokers.nats.client import EchelonClient
from echelon.errors import BrokerError, Denied, EchelonError, Unreachable
from echelon.local import NatsServer
from echelon.local.server import free_port
from echelon.testing.contract.harness import whole
from tests.brokers.nats.harness import make_stream, options_of
from tests.certificates import Certificates
from tests.nats_security import NATS_WAYS
from tests.servers import NatsServers, SecureNats


async def use(broker: NatsBroker) -> None:
    """Something over each of the broker's connections."""
    async with broker:
        log = await broker.create_log("group")
        sequence = await log.append(b"hello")
        assert [entry.data for entry in await log.read(sequence, sequence + 1)] == [b"hello"]
        async for entries in log.follow(sequence):
            assert entries[0].data == b"hello"
            break
        await (await broker.writer()).write("echelon.log.group.member", b"written")
        assert (await log.bounds()).end == sequence + 2
        await broker.prepare_outlets("group")
        await (await broker.writer()).write(broker.dead_letters("group"), b"data")
        reader = await broker.reader("group", broker.dead_stream("group"))
        assert [message.data for message in (await whole(reader, 1))[0]] == [b"data"]


async def refused(broker: NatsBroker) -> EchelonError:
    with pytest.raises(EchelonError) as caught:
        async with broker:
            pass
    return caught.value


@pytest.mark.parametrize("way", NATS_WAYS)
def test_each_way_of_proving_who_one_is(secure_nats: SecureNats, way: str) -> None:
    server, security = secure_nats(way)
    asyncio.run(use(NatsBroker(server.url, **options_of(security))))


@pytest.mark.parametrize("way", NATS_WAYS)
def test_whoever_shows_nothing_is_denied(secure_nats: SecureNats, way: str) -> None:
    server, _ = secure_nats(way)
    error = asyncio.run(refused(NatsBroker(server.url)))
    assert isinstance(error, Denied)
    assert f"127.0.0.1:{server.port}" in str(error)
    assert error.remedy


@pytest.mark.parametrize(
    "make_url",
    [lambda port: f"nats://alice:wonderland@127.0.0.1:{port}", lambda port: f"nats://alice:wonderland@nobody.invalid,127.0.0.1:{port}"],
)  # fmt: skip
def test_user_and_password_in_the_url(secure_nats: SecureNats, make_url: Callable[[int], str]) -> None:
    server, _ = secure_nats("password")
    asyncio.run(use(NatsBroker(make_url(server.port))))


def test_a_token_in_the_url(secure_nats: SecureNats) -> None:
    server, security = secure_nats("token")
    asyncio.run(use(NatsBroker(f"nats://{security.token}@127.0.0.1:{server.port}")))


def test_credentials_from_the_environment(secure_nats: SecureNats, monkeypatch: pytest.MonkeyPatch) -> None:
    server, security = secure_nats("creds")
    monkeypatch.setenv("ECHELON_NATS_CREDS", str(security.creds))
    asyncio.run(use(NatsBroker(server.url)))


def test_wrong_credentials_are_denied_and_never_shown(
    secure_nats: SecureNats, caplog: pytest.LogCaptureFixture
) -> None:
    server, _ = secure_nats("password")
    with caplog.at_level(logging.DEBUG):
        error = asyncio.run(refused(NatsBroker(f"nats://alice:looking-glass@127.0.0.1:{server.port}")))
    assert isinstance(error, Denied)
    assert "credentials" in str(error)  # The server's words are lost if the connection is reset before they are read.
    assert "looking-glass" not in str(error) + caplog.text


def test_a_refusal_is_told_though_the_connection_is_reset_right_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect(_: EchelonClient, error_cb: Callable[[Exception], Awaitable[None]], **__: object) -> None:
        await error_cb(errors.Error("nats: 'Authorization Violation'"))
        await error_cb(ConnectionResetError(104, "Connection reset by peer"))
        raise errors.NoServersError

    monkeypatch.setattr(EchelonClient, "connect", connect)
    monkeypatch.setattr(EchelonClient, "close", lambda _: asyncio.sleep(0))
    error = asyncio.run(refused(NatsBroker("nats://alice:wonderland@127.0.0.1:4222")))
    assert isinstance(error, Denied)
    assert "does not accept the credentials" in str(error)


def test_a_server_that_nobody_vouches_for_is_not_talked_to(secure_nats: SecureNats, certificates: Certificates) -> None:
    server, security = secure_nats("tls")
    for ca in ({}, {"tls_ca": certificates.other_ca}):
        error = asyncio.run(refused(NatsBroker(f"tls://127.0.0.1:{server.port}", **ca)))
        assert isinstance(error, Denied)
        assert "certificate" in str(error).lower()
    asyncio.run(use(NatsBroker(f"tls://127.0.0.1:{server.port}", **options_of(security))))


def test_without_tls_on_the_server_nothing_is_sent_if_tls_is_a_must(nats_servers: NatsServers) -> None:
    server = nats_servers(config="authorization { user: alice, password: wonderland }")
    error = asyncio.run(refused(NatsBroker(f"tls://alice:wonderland@127.0.0.1:{server.port}")))
    assert isinstance(error, Denied)
    assert "does not speak TLS" in str(error)


def test_nobody_there_is_unreachable() -> None:
    port = free_port()
    began = time.monotonic()
    error = asyncio.run(refused(NatsBroker(f"nats://alice:wonderland@127.0.0.1:{port}")))
    assert isinstance(error, Unreachable)
    assert f"127.0.0.1:{port}" in str(error)
    assert "Connect call failed" in str(error)
    assert "wonderland" not in str(error)
    assert time.monotonic() - began < 4


def test_a_server_that_does_not_answer_is_unreachable(nats_servers: NatsServers) -> None:
    server = nats_servers()
    server.pause()
    try:
        error = asyncio.run(refused(NatsBroker(server.url, timeout=1)))
    finally:
        server.resume()
    assert isinstance(error, Unreachable)


def test_without_jetstream_it_says_so(tmp_path: Path) -> None:
    """The fixture's servers always have JetStream, so one account here has none."""
    without = "A: { users: [ {user: a, password: a} ] }"
    config = f"accounts {{ {without}, B: {{ jetstream: enabled, users: [ {{user: b, password: b}} ] }} }}"
    with NatsServer(tmp_path, config=config) as server:
        error = asyncio.run(refused(NatsBroker(f"nats://a:a@127.0.0.1:{server.port}")))
        assert isinstance(error, BrokerError)
        assert "there is no JetStream" in str(error)
        asyncio.run(use(NatsBroker(f"nats://b:b@127.0.0.1:{server.port}")))


def test_a_domain(nats_servers: NatsServers) -> None:
    server = nats_servers(config="jetstream { domain: hub }")
    asyncio.run(use(NatsBroker(server.url, domain="hub")))
    error = asyncio.run(refused(NatsBroker(server.url, domain="elsewhere", timeout=2)))
    assert "there is no JetStream under $JS.elsewhere.API" in str(error)


PREFIXED = """
accounts {
  OWNER: {
    jetstream: enabled
    users: [ {user: owner, password: owner} ]
    exports: [ {service: "$JS.API.>", response: stream}, {service: "echelon.log.>"}, {stream: "deliver.>"} ]
  }
  GUEST: {
    users: [ {user: guest, password: guest} ]
    imports: [
      {service: {account: OWNER, subject: "$JS.API.>"}, to: "JS.owner.>"}
      {service: {account: OWNER, subject: "echelon.log.>"}}
    ]
  }
}
"""


def test_an_api_prefix(nats_servers: NatsServers) -> None:
    """The guest's account has no JetStream; it uses the owner's under another prefix."""
    server = nats_servers(config=PREFIXED)

    async def run() -> None:
        async with NatsBroker(f"nats://guest:guest@127.0.0.1:{server.port}", api_prefix="JS.owner") as guest:
            log = await guest.create_log("group")
            sequences = [await log.append(b"%d" % n) for n in range(5)]
            assert [entry.data for entry in await log.read(sequences[0], sequences[-1] + 1)] == [
                b"0",
                b"1",
                b"2",
                b"3",
                b"4",
            ]
            async with NatsBroker(f"nats://owner:owner@127.0.0.1:{server.port}") as owner:
                assert await owner.groups() == ["group"]

    asyncio.run(run())


LIMITED = """
authorization {
  users: [
    {user: admin, password: admin}
    {user: member, password: member, permissions: {
      publish: ["echelon.log.group.member", "$JS.API.>"], subscribe: "_INBOX.>" }}
    {user: reader, password: reader, permissions: {
      publish: {deny: ["$JS.API.CONSUMER.>", "echelon.log.>", "$JS.API.DIRECT.GET.S"]}, subscribe: "_INBOX.>" }}
    {user: poller, password: poller, permissions: {
      publish: {deny: ["$JS.API.CONSUMER.MSG.NEXT.>"]}, subscribe: "_INBOX.>" }}
    {user: deaf, password: deaf, permissions: {publish: ">", subscribe: "nothing"}}
    {user: boxed, password: boxed, permissions: {publish: ">", subscribe: "_BOX.>"}}
  ]
}
"""


def denied(server: NatsServer, user: str, act: Callable[[NatsBroker], Awaitable[object]], words: str) -> None:
    async def run() -> None:
        async with NatsBroker(f"nats://admin:admin@127.0.0.1:{server.port}") as admin:
            await admin.create_log("group")
        began = time.monotonic()
        with pytest.raises(Denied, match=words) as caught:
            async with NatsBroker(f"nats://{user}:{user}@127.0.0.1:{server.port}") as broker:
                await act(broker)
        assert caught.value.remedy
        assert time.monotonic() - began < 4.5, "it should not have waited for a time limit"

    asyncio.run(run())


def test_what_the_user_may_not_do_is_denied_at_once(nats_servers: NatsServers) -> None:
    server = nats_servers(config=LIMITED)

    async def append_as_admin(broker: NatsBroker) -> None:
        log = await broker.log("group")
        await log.append(b"member's")
        await log.append(b"administrator's", admin=True)

    async def follow(broker: NatsBroker) -> None:
        async for _ in (await broker.log("group")).follow(0):
            pass

    async def read(broker: NatsBroker) -> None:
        await make_stream(f"nats://admin:admin@127.0.0.1:{server.port}", "S", ["s.*"])
        from echelon.group.config import Stream

        reader = await broker.reader("group", Stream("S", 1))
        async for _ in reader.tail(0, 1):
            pass

    denied(server, "member", append_as_admin, r"may not publish to echelon\.log\.group\.admin")
    denied(server, "reader", lambda broker: broker.create_log("other"), r"may not publish to echelon\.log\.other")
    denied(server, "reader", follow, r"may not publish to \$JS\.API\.CONSUMER\.CREATE\.ECHELON")
    denied(server, "reader", read, r"may not publish to \$JS\.API\.DIRECT\.GET\.S")
    denied(server, "poller", follow, r"may not publish to \$JS\.API\.CONSUMER\.MSG\.NEXT\.ECHELON")
    denied(server, "deaf", lambda broker: broker.groups(), r"may not subscribe to _INBOX")


def test_replies_under_another_prefix(nats_servers: NatsServers) -> None:
    server = nats_servers(config=LIMITED)
    asyncio.run(use(NatsBroker(f"nats://boxed:boxed@127.0.0.1:{server.port}", inbox_prefix="_BOX")))

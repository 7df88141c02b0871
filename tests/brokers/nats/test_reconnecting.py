"""Connections to real servers that are lost, and come back."""

import asyncio
import socket
import struct
from pathlib import Path

import pytest

from echelon.brokers.nats import NatsBroker
from echelon.brokers.nats.client import EchelonClient
from echelon.brokers.nats.connection import Connection
from echelon.brokers.nats.settings import Settings
from echelon.errors import Denied, Unreachable
from tests.members.waiting import until
from tests.servers import NatsServers, SecureNats


def test_a_user_that_is_taken_away_is_denied_and_comes_back(nats_servers: NatsServers) -> None:
    """The server is restarted with other users, and then with the old ones again."""
    server = nats_servers(config="authorization { user: alice, password: wonderland }")

    async def run() -> None:
        async with NatsBroker(f"nats://alice:wonderland@127.0.0.1:{server.port}", timeout=1) as broker:
            log = await broker.create_log("group")
            first = await log.append(b"before")
            server.config, old = "authorization { user: bob, password: builder }", server.config
            await asyncio.to_thread(server.restart)
            with pytest.raises(Denied, match="does not accept the credentials"):
                while True:
                    try:
                        await log.append(b"not stored")
                    except Unreachable:
                        await asyncio.sleep(0.05)
            server.config = old
            await asyncio.to_thread(server.restart)
            while True:
                try:
                    last = await log.append(b"after")
                    break
                except (Unreachable, Denied):
                    await asyncio.sleep(0.05)
            assert [entry.data for entry in await log.read(first, last + 1)] == [b"before", b"after"]

    asyncio.run(run())


def test_a_balancer_that_breaks_connections_while_the_server_is_away_denies_nobody(nats_servers: NatsServers) -> None:
    """A server that wants credentials may break a connection because of them, but not if it took them before."""
    server = nats_servers(config="authorization { user: alice, password: wonderland }")

    async def run() -> None:
        connection = Connection(Settings(f"nats://alice:wonderland@127.0.0.1:{server.port}", {"timeout": 0.5}), "test")
        await connection.open()
        try:
            await asyncio.to_thread(server.stop)
            balancer = await asyncio.start_server(reset, "127.0.0.1", server.port)
            async with balancer:
                with pytest.raises(Unreachable, match="reset by peer"):
                    await connection.wait_until_up()
        finally:
            await connection.close()

    asyncio.run(run())


def reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Break a connection, with what TCP calls a reset."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def test_credentials_that_are_half_written_when_they_are_read_again_are_read_once_more(
    secure_nats: SecureNats, tmp_path: Path
) -> None:
    server, security = secure_nats("creds")
    assert security.creds is not None
    whole_file, creds = security.creds.read_bytes(), tmp_path / "user.creds"
    creds.write_bytes(whole_file)

    async def run() -> None:
        connection = Connection(Settings(server.url, {"creds": creds}), "test")
        await connection.open()
        try:
            creds.write_bytes(whole_file[:100])
            await connection._client.force_reconnect()
            await until(lambda: not connection.is_up)
            connection.settings.timeout = 0.3
            with pytest.raises(Unreachable):
                await connection.wait_until_up()
            creds.write_bytes(whole_file)
            await until(lambda: connection.is_up)
        finally:
            await connection.close()

    asyncio.run(run())


def test_after_a_long_outage_every_server_is_asked_as_soon_as_any_other(nats_servers: NatsServers) -> None:
    servers = {server.port: server for server in (nats_servers(), nats_servers())}

    async def run() -> None:
        connection = Connection(Settings(",".join(server.url for server in servers.values()), {}), "test")
        await connection.open()
        client = connection._client
        try:
            for each in client._server_pool:
                each.reconnects = 500
            await client.force_reconnect()
            await until(lambda: client.stats["reconnects"] == 1 and connection.is_up)
            lost = servers.pop(port(client))
            await asyncio.to_thread(lost.kill)
            await until(lambda: connection.is_up and port(client) in servers)
        finally:
            await connection.close()

    asyncio.run(run())


def port(client: EchelonClient) -> int:
    """Of the server that it is connected to."""
    return (client.connected_url and client.connected_url.port) or 0

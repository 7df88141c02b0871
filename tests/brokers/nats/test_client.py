"""What is private in nats-py and used nevertheless is there, and is used by nats-py as expected."""

import asyncio
import inspect
import re

import pytest
from nats.aio.client import Client, Server, Srv
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport
from nats.protocol.parser import Parser as TheirParser

from echelon.brokers.nats.client import EchelonClient, next_server, number_of
from echelon.brokers.nats.wire import Parser


def source(of: object) -> str:
    return inspect.getsource(of)  # type: ignore[arg-type]  # functions and classes only


@pytest.mark.parametrize(
    "name", ["_transport", "_ps", "_pending", "_pending_data_size", "_server_info", "_server_pool"]
)
def test_the_client_has_what_is_replaced_or_read(name: str) -> None:
    assert hasattr(Client(), name)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("_process_connect_init", ["self"]),
        ("_process_info", ["self", "info", "initial_connection"]),
        ("_process_err", ["self", "err_msg"]),
        ("_process_op_err", ["self", "e"]),
        ("_process_ping", ["self"]),
        ("_process_pong", ["self"]),
        ("_connect_to_server", ["self", "s"]),
    ],
)
def test_the_client_has_the_methods_that_are_called_or_overridden(name: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(Client, name)).parameters) == parameters


def test_the_parser_has_all_that_the_client_uses_of_its_own() -> None:
    used = set(re.findall(r"self\._ps\.(\w+)", source(Client)))
    assert used == {"reset", "parse"}
    for name in used:
        theirs, ours = getattr(TheirParser, name), getattr(Parser, name)
        assert list(inspect.signature(theirs).parameters) == list(inspect.signature(ours).parameters)
        assert inspect.iscoroutinefunction(theirs) == inspect.iscoroutinefunction(ours)


def test_the_client_keeps_a_transport_that_it_was_given() -> None:
    assert "if not self._transport:" in source(Client._connect_to_server)
    assert EchelonClient(needs_tls=False, on_violation=print)._transport
    assert {"connect", "read"} <= set(vars(TcpTransport))


def test_a_reader_of_asyncio_holds_what_nobody_has_read() -> None:
    async def hold() -> None:
        reader = asyncio.StreamReader()
        assert not reader._buffer  # type: ignore[attr-defined]  # it is private
        reader.feed_data(b"some")
        assert reader._buffer == b"some"  # type: ignore[attr-defined]  # the same

    asyncio.run(hold())
    assert {"_io_reader", "_io_writer"} <= set(vars(TcpTransport()))  # type: ignore[no-untyped-call]  # no annotations


def test_a_subscription_has_its_number() -> None:
    assert number_of(Subscription(Client(), 17)) == 17
    assert "sub._id" in source(Client._send_subscribe)


def test_the_tls_requirement_is_checked_before_credentials_are_sent() -> None:
    code = source(Client._process_connect_init)
    assert code.index("self._process_info(srv_info, initial_connection=True)") < code.index("self._connect_command()")


def test_the_first_attempts_to_reconnect_come_at_once() -> None:
    servers = [Server(uri=Client._parse_server_uri("nats://a:1"), reconnects=n) for n in range(12)]
    waits = [next_server([server], {})[1] for server in servers]
    assert waits == sorted(waits)
    assert waits[0] == 0
    assert sum(waits[:4]) < 0.2
    assert waits[-1] == 0.25
    assert next_server(servers[2:5], {})[0] is servers[2]


def test_a_server_that_is_named_twice_is_not_asked_without_a_pause() -> None:
    """nats-py looks for the server by its address, and counts the attempt for the first that has it."""
    uri = Client._parse_server_uri("nats://a:1")
    first = Server(uri=uri, reconnects=3)
    assert next_server([first, Server(uri=uri)], {}) == (first, 0.08)
    assert "if s.uri.netloc == selected.uri.netloc:" in source(Client._attempt_reconnect)


def test_the_event_loop_goes_on_and_attempts_keep_their_pause_through_an_outage_of_any_length() -> None:
    """If our function raised, nats-py would call it again at once and for ever, without a turn of the event loop."""
    server = Srv(Client._parse_server_uri("nats://127.0.0.1:1"), reconnects=5000)
    offered = Server(uri=server.uri, reconnects=5000)
    assert next_server([offered], {}) == (offered, 0.25)

    async def reconnect() -> None:
        client = EchelonClient(needs_tls=False, on_violation=print)
        client._server_pool, client._current_server = [server], server
        client._reconnect_to_server_handler = next_server
        client.options = {"max_reconnect_attempts": -1, "connect_timeout": 1}
        loop = asyncio.get_running_loop()
        attempts: list[float] = []

        async def fail(error: Exception) -> None:
            assert isinstance(error, OSError)
            attempts.append(loop.time())

        client._error_cb = fail
        reconnecting = asyncio.create_task(client._attempt_reconnect())
        while len(attempts) < 2:
            await asyncio.sleep(0.01)
        reconnecting.cancel()
        await reconnecting
        assert attempts[1] - attempts[0] >= 0.2

    asyncio.run(reconnect())

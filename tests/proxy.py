"""A network between clients and their server that fails at a moment of the test's choosing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """Passes bytes between its clients and one server, to which `connect` makes a connection."""

    def __init__(self, connect: Callable[[], Awaitable[Ends]]) -> None:
        self._connect = connect
        self._request = b""
        self._arrives = False
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.failures = 0

    def fail(self, request: bytes, *, arrives: bool) -> None:
        """Break the connection when a client sends this: so that it arrives but is not answered, or before that."""
        self._request, self._arrives = request, arrives

    def cut(self) -> None:
        """Let nothing arrive any more, and tell nobody."""
        self._whole.clear()

    def mend(self) -> None:
        """Let things arrive again; what was under way arrives late."""
        self._whole.set()

    @asynccontextmanager
    async def on_port(self) -> AsyncIterator[int]:
        """Listen on loopback, on the port that this gives."""
        async with self._closing(await asyncio.start_server(self._accept, "127.0.0.1")) as server:
            yield server.sockets[0].getsockname()[1]

    @asynccontextmanager
    async def on_path(self, path: str) -> AsyncIterator[None]:
        """Listen on a Unix socket."""
        async with self._closing(await asyncio.start_unix_server(self._accept, path)):
            yield

    @asynccontextmanager
    async def _closing(self, server: asyncio.Server) -> AsyncIterator[asyncio.Server]:
        try:
            yield server
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve((reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, client: Ends) -> None:
        try:
            with suppress(OSError):
                server = await self._connect()
                answering = asyncio.create_task(self._answer(server[0], client[1]))
                try:
                    await self._ask(client[0], server[1], answering)
                finally:
                    answering.cancel()
                    server[1].close()
        finally:
            client[1].transport.abort()

    async def _ask(
        self, client: asyncio.StreamReader, server: asyncio.StreamWriter, answering: "asyncio.Task[None]"
    ) -> None:
        while data := await client.read(1 << 16):
            await self._whole.wait()
            is_it = bool(self._request) and self._request in data
            if is_it:
                self._request = b""
                self.failures += 1
                answering.cancel()
            if not is_it or self._arrives:
                server.write(data)
                await server.drain()
            if is_it:
                await asyncio.sleep(0.1)
                return

    async def _answer(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await server.read(1 << 16):
                await self._whole.wait()
                client.write(data)
                await client.drain()
            client.close()

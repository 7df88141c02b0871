"""A network between processes and their broker that can be cut."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class Cable:
    """Passes bytes between its clients and a server.

    Once it is cut, nothing arrives any more, and nobody is told. Once it is mended, what was under way arrives late.
    """

    def __init__(self) -> None:
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def laid(self, url: str) -> AsyncIterator[str]:
        """Lay it to the server at this URL; the URL at which clients reach that through the cable."""
        there = urlsplit(url)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                server, to_server = await asyncio.open_connection(there.hostname, there.port)
            except OSError:
                writer.close()
                return
            for ends in ((reader, to_server), (server, writer)):
                task = asyncio.create_task(self._pass(*ends))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

        listening = await asyncio.start_server(serve, "127.0.0.1")
        try:
            yield f"{there.scheme}://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        finally:
            listening.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

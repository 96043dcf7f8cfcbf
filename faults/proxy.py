"""A TCP proxy between a process and the store: it can go silent, cut connections, add delay, and speak TLS."""

import asyncio
import ssl
from contextlib import suppress


class Proxy:
    """Forwards connections on a port of 127.0.0.1 to a target port."""

    def __init__(self, target: int, tls: ssl.SSLContext | None = None) -> None:
        """With ``tls``, its clients speak TLS and the target does not."""
        self.target = target
        """Where new connections lead."""
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.delay = 0.0
        """Seconds by which everything is late, in both directions."""
        self.bandwidth = 0
        """Bytes per second of each connection and direction; 0 for no limit."""
        self.port = 0

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    def silence(self) -> None:
        """Let nothing through from now on; connections stay open, as in a network that loses every packet."""
        self._flowing.clear()

    def restore(self) -> None:
        """Reset the connections that fell silent, and let new ones through."""
        for writer in self._writers:
            writer.transport.abort()
        self._flowing.set()

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
            self.restore()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        try:
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        finally:
            for one in (writer, back):
                self._writers.discard(one)
                one.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._flowing.wait()
                if self.delay or self.bandwidth:
                    await asyncio.sleep(self.delay + (len(data) / self.bandwidth if self.bandwidth else 0))
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

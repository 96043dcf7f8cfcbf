"""A store that understands a few commands, on a real socket."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import hiredis

CERTIFICATE = Path(__file__).with_name("localhost.pem")
"""A certificate for localhost, with its key, that is good for nothing but these tests."""


class LittleStore:
    """Answers ``ECHO``, ``REFUSE`` and ``WRITE`` with errors, ``HANG UP`` by doing so, ``HANG UP ONCE`` by doing so the
    first time, and anything else with OK."""

    def __init__(self) -> None:
        self.url = ""
        self.heard: list[list[bytes]] = []
        self.connections: list[asyncio.StreamWriter] = []
        self.silent = False
        """Whether it says nothing any more."""
        self.locked = False
        """Whether it refuses all commands for want of a password."""

    def publish(self, message: bytes) -> None:
        """Send a message to all who are connected, whether they have subscribed or not."""
        for writer in self.connections:
            writer.write(hiredis.pack_command((b"message", b"channel", message)))  # type: ignore[arg-type] # its stub knows only pairs

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        self.connections.append(writer)
        commands = hiredis.Reader()
        while data := await reader.read(1 << 16):
            commands.feed(data)
            while (command := commands.gets()) is not False:
                self.heard.append(command)
                if not self.silent:
                    self._answer(command, writer)
        writer.close()

    def _answer(self, command: list[bytes], writer: asyncio.StreamWriter) -> None:
        match command:
            case _ if self.locked:
                writer.write(b"-NOAUTH Authentication required.\r\n")
            case [b"ECHO", text]:
                writer.write(b"$%d\r\n%b\r\n" % (len(text), text))
            case [b"REFUSE"]:
                writer.write(b"-NOPERM you may not\r\n")
            case [b"WRITE"]:
                writer.write(b"-READONLY You can't write against a read only replica.\r\n")
            case [b"HANG", b"UP"]:
                writer.close()
            case [b"HANG", b"UP", b"ONCE"] if self.heard.count(command) == 1:
                writer.close()
            case [b"SUBSCRIBE", channel]:
                writer.write(b"*3\r\n$9\r\nsubscribe\r\n$%d\r\n%b\r\n:1\r\n" % (len(channel), channel))
            case [b"PING"]:
                writer.write(b"*2\r\n$4\r\npong\r\n$0\r\n\r\n")
            case _:
                writer.write(b"+OK\r\n")


@asynccontextmanager
async def fake_redis_server(*, tls: bool) -> AsyncIterator[LittleStore]:
    """Run one around a block."""
    store = LittleStore()
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
    server = await asyncio.start_server(store.serve, "localhost", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    trust = f"?ssl_ca_certs={CERTIFICATE}" if tls else ""
    store.url = f"redis{'s' if tls else ''}://localhost:{port}/0{trust}"
    try:
        yield store
    finally:
        server.close()
        for writer in store.connections:
            writer.close()

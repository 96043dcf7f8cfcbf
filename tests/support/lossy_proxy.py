"""A TCP proxy before the store that cuts the connection after a command was executed, and before its reply."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import hiredis

_HANDSHAKE = (b"CLIENT", b"HELLO", b"SELECT", b"AUTH", b"SCRIPT")


class LossyProxy:
    """Forwards one command of a connection after the other, to a store on a port of 127.0.0.1."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.url = ""
        self.commands = 0
        """How many commands were executed, without those with which a connection begins."""
        self.lost: int | None = None
        """The number of the command whose reply is lost, from 0."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Listen within the block."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
        try:
            yield
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_store, to_store = await asyncio.open_connection("127.0.0.1", self._target)
        commands = hiredis.Reader()
        try:
            while data := await reader.read(1 << 16):
                commands.feed(data)
                while (command := commands.gets()) is not False:
                    to_store.write(hiredis.pack_command(tuple(command)))
                    reply = await _read_reply(from_store)
                    if command[0].upper() not in _HANDSHAKE:
                        self.commands += 1
                        if self.commands - 1 == self.lost:
                            return
                    writer.write(reply)
        finally:
            to_store.close()
            writer.close()


async def _read_reply(reader: asyncio.StreamReader) -> bytes:
    """Return one whole reply as it was sent."""
    parser, reply = hiredis.Reader(), b""
    while parser.gets() is False:
        data = await reader.read(1 << 16)
        parser.feed(data)
        reply += data
    return reply

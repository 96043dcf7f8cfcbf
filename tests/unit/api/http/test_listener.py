"""How many connections a replica accepts in an iteration of its event loop."""

import asyncio
import socket
from contextlib import ExitStack

from api.http.listener import duplicated, listen
from shared.runtime.event_loop import run


def test_a_burst_of_connections_is_accepted_within_a_few_iterations() -> None:
    """A busy replica serves others in each iteration, for which the last of new clients waits."""
    with ExitStack() as ends:
        listener = ends.enter_context(listen("127.0.0.1", 0, timeout=60))
        for _ in range(64):
            ends.enter_context(socket.create_connection(listener.getsockname()))

        async def iterations() -> int:
            accepted: list[asyncio.BaseTransport] = []

            class Accepted(asyncio.Protocol):
                def connection_made(self, transport: asyncio.BaseTransport) -> None:
                    accepted.append(transport)

            loop, number = asyncio.get_running_loop(), 0
            servers = [await loop.create_server(Accepted, sock=one) for one in duplicated(listener)]
            while len(accepted) < 64:
                await asyncio.sleep(0)
                number += 1
            for server in servers:
                server.close()
            for transport in accepted:
                transport.close()
            await asyncio.sleep(0)
            return number

        assert run(iterations()) < 32

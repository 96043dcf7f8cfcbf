"""Draining: the end of a replica, in which it finishes open requests and accepts no new ones."""

import asyncio
import logging

from api.relay import Relay
from shared.protocol.errors import Problem, ProblemKind

logger = logging.getLogger(__name__)


class Draining:
    """Whether this replica is draining."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self.draining = False
        """Whether new requests are refused."""

    async def drain(self, grace: float) -> None:
        """Refuse new requests, wait up to ``grace`` seconds for open streams, then fail the remaining ones.

        The jobs of stored responses go on. Their clients get the error as well.
        """
        self.draining = True
        try:
            async with asyncio.timeout(grace):
                await self._relay.emptied()
        except TimeoutError:
            logger.warning("drain timed out; %d requests are aborted", len(self._relay.streams()))
        for stream in self._relay.streams():
            stream.leave(
                Problem(
                    kind=ProblemKind.SHUTTING_DOWN,
                    message="This server was shut down before the response was complete.",
                )
            )

"""Draining: the end of a replica, in which it finishes open requests and accepts no new ones."""

import asyncio
import logging

from api.relay import Relay
from api.response_stream import ResponseStream
from shared.protocol.errors import Problem, ProblemKind

logger = logging.getLogger(__name__)


class Draining:
    """Whether this replica is draining, and which requests it leaves to other replicas."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._drained = False
        self.draining = False
        """Whether new requests are refused."""

    async def drain(self, grace: float) -> None:
        """Refuse new requests, wait up to ``grace`` seconds for open streams, then fail the remaining ones.

        Streams with a pending completion are left to another replica. Their clients get the error as well.
        """
        self.draining = True
        try:
            async with asyncio.timeout(grace):
                await self._relay.emptied()
        except TimeoutError:
            logger.warning("drain timed out; %d requests are aborted", len(self._relay.streams()))
        self._drained = True
        for stream in self._relay.streams():
            stream.fail(
                Problem(
                    kind=ProblemKind.SHUTTING_DOWN,
                    message="This server was shut down before the response was complete.",
                )
            )

    def leaves(self, stream: ResponseStream) -> bool:
        """Return whether another replica must finish, store and charge ``stream``, because this one shuts down."""
        return self._drained and stream.recoverable and (stream.abandoned or not stream.finished)

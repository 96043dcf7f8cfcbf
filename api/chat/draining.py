"""Draining: the end of a replica, in which it is not ready, and finishes the requests that it has."""

import asyncio
import logging
from collections.abc import Sized

from api.chat.relay import Relay
from shared.protocol.errors import Problem, ProblemKind

logger = logging.getLogger(__name__)

_POLL = 0.05
"""Interval in seconds at which the end of all requests is awaited."""


class Draining:
    """Whether this replica is draining."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self.draining = False
        """Whether the replica ends: it is not ready, and begins nothing on its own. It still serves what it gets."""
        self.drained = False
        """Whether new requests are refused."""

    async def drain(self, grace: float, connections: Sized = ()) -> None:
        """Wait up to ``grace`` seconds until no stream is open and ``connections`` is empty, then fail the remaining
        streams.

        The jobs of stored responses go on. Their clients get the error as well.
        """
        self.draining = True
        try:
            async with asyncio.timeout(grace):
                while self._relay.streams() or connections:  # noqa: ASYNC110 - of two owners, once in a process
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            logger.warning("drain timed out; %d requests are aborted", len(self._relay.streams()))
        self.drained = True
        for stream in self._relay.streams():
            stream.leave(
                Problem(
                    kind=ProblemKind.SHUTTING_DOWN,
                    message="This server was shut down before the response was complete.",
                )
            )

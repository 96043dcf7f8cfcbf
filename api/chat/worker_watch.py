"""The worker watch: fails requests whose model has lost its last worker."""

import asyncio

from api.chat.relay import Relay
from api.models.directory import Directory
from api.models.lookup import RETRY_NO_WORKER
from shared.protocol.errors import Problem, ProblemKind
from shared.runtime.ticks import next_tick


class WorkerWatch:
    """Fails response streams whose model has had no worker for longer than a grace period."""

    def __init__(self, relay: Relay, directory: Directory, *, grace: float, lease: float) -> None:
        """``grace`` and ``lease`` are in seconds; the watch looks three times per lease."""
        self._relay = relay
        self._directory = directory
        self._grace = grace
        self._lease = lease

    async def run(self) -> None:
        """Watch until cancelled. While the store is unreachable, absent workers mean nothing."""
        while True:
            await asyncio.sleep(next_tick(self._lease / 3))
            if self._directory.reachable:
                self._fail_without_worker()

    def _fail_without_worker(self) -> None:
        streams = self._relay.streams()
        models = {stream.model for stream in streams}
        orphaned = {model for model in models if self._directory.without_worker_for(model) > self._grace}
        for stream in streams:
            if stream.model in orphaned:
                stream.fail(
                    Problem(
                        kind=ProblemKind.NO_WORKER,
                        message=f"The model '{stream.model}' has lost its last worker. Please try again later.",
                        retry_after=RETRY_NO_WORKER,
                    )
                )

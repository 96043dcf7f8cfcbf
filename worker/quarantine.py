"""Jobs under suspicion: which engine deaths are whose, so that one bad request does not take others down.

When an engine dies, any request in its batch may be the cause. All of them are suspects then, and run again one
suspect at a time beside whatever else runs, until each has got well past the place where the engine died. If it dies
again meanwhile, the one on trial is to blame, and nobody else.
"""

import asyncio
from collections.abc import Iterable

QUARANTINE_TOKENS = 8
"""New tokens that clear a suspect."""

MAX_CRASHES = 2
"""Engine deaths on a request's account after which it is not tried again."""

SUSPECT_LOST_WORKERS = 2
"""Workers that vanished with a request before it is a suspect: hosts do go away for other reasons."""


class Quarantine:
    """Admits one suspect at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._suspect: str | None = None
        self._cleared_at = 0

    @staticmethod
    def concerns(crashes: int, lost_workers: int) -> bool:
        """Whether a job with this past is a suspect."""
        return crashes > 0 or lost_workers >= SUSPECT_LOST_WORKERS

    async def begin(self, job: str, generated: int) -> None:
        """Wait for the turn of ``job``, which has ``generated`` tokens already."""
        await self._turn.acquire()
        self._suspect = job
        self._cleared_at = generated + QUARANTINE_TOKENS

    def progressed(self, job: str, tokens: int) -> None:
        """Note that ``job`` has ``tokens`` tokens now."""
        if job == self._suspect and tokens >= self._cleared_at:
            self.end(job)

    def end(self, job: str) -> None:
        """End the trial of ``job``, if it is the one on trial."""
        if job == self._suspect:
            self._suspect = None
            self._turn.release()

    def suspects(self, running: Iterable[str]) -> frozenset[str]:
        """The jobs that the death of an engine with ``running`` in it is to be suspects on."""
        return frozenset(running) if self._suspect is None else frozenset((self._suspect,))

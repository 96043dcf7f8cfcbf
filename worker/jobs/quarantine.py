"""Quarantine: runs suspects one at a time, so that a request that crashes engines is identified.

When an engine crashes, every job in its batch is a suspect. Suspects run again, at most one of them in the batch at a
time; other jobs are not affected. A suspect is cleared once it has generated some more tokens than before the crash.
If the engine crashes again meanwhile, only the suspect in quarantine is charged with it.
"""

import asyncio
from collections.abc import Iterable

QUARANTINE_TOKENS = 8
"""New tokens after which a suspect is cleared."""

MAX_CRASHES = 2
"""Engine crashes charged to a request after which it is refused as poison."""

SUSPECT_LOST_WORKERS = 2
"""Lost workers from which on a request is a suspect. More than one, because workers disappear for other reasons."""


class Quarantine:
    """Lets one suspect run at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._suspect: str | None = None
        self._cleared_at = 0

    @staticmethod
    def is_suspect(crashes: int, lost_workers: int) -> bool:
        """Return whether a job with these counts is a suspect."""
        return crashes > 0 or lost_workers >= SUSPECT_LOST_WORKERS

    async def enter(self, job: str, generated: int) -> None:
        """Wait until no other suspect runs. ``job`` has ``generated`` tokens already."""
        await self._turn.acquire()
        self._suspect = job
        self._cleared_at = generated + QUARANTINE_TOKENS

    def record_progress(self, job: str, tokens: int) -> None:
        """Record that ``job`` has ``tokens`` tokens now, which may clear it."""
        if job == self._suspect and tokens >= self._cleared_at:
            self.leave(job)

    def leave(self, job: str) -> None:
        """End the quarantine of ``job``, if it is the suspect that runs."""
        if job == self._suspect:
            self._suspect = None
            self._turn.release()

    def suspects(self, running: Iterable[str]) -> frozenset[str]:
        """Return which of the ``running`` jobs to suspect for a crash of the engine that had them.

        The suspect in quarantine may not be one of them: it may still wait, for a shared prefix or for an engine.
        """
        jobs = frozenset(running)
        return jobs & {self._suspect} or jobs

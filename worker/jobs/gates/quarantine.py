"""Quarantine: runs suspects one at a time, so that a request that crashes engines is identified.

When an engine crashes, every job in its batch is a suspect. Suspects run again, at most one of them in the batch at a
time; other jobs are not affected. A suspect is cleared once it has generated some more tokens than before the crash.
If the engine crashes again meanwhile, only the suspect in quarantine is charged with it.
"""

import asyncio

from worker.jobs.attempt import Attempt, Hold
from worker.jobs.gates import NOTHING

QUARANTINE_TOKENS = 8
"""New tokens after which a suspect is cleared."""

MAX_CRASHES = 2
"""Engine crashes charged to a request after which it is refused as poison."""


class Quarantine:
    """Lets one suspect run at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def enter(self, attempt: Attempt) -> Hold:
        """Wait until no other suspect runs, if ``attempt`` is one."""
        if not attempt.is_suspect:
            return NOTHING
        await self._turn.acquire()
        return _Turn(attempt, self._turn)


class _Turn(Hold):
    def __init__(self, attempt: Attempt, turn: asyncio.Lock) -> None:
        attempt.in_quarantine = True
        self._attempt = attempt
        self._turn = turn
        self._cleared_at = attempt.resumed + QUARANTINE_TOKENS

    def progress(self, tokens: int) -> bool:
        if tokens >= self._cleared_at:
            self.leave()
        return self._attempt.in_quarantine

    def leave(self) -> None:
        if self._attempt.in_quarantine:
            self._attempt.in_quarantine = False
            self._turn.release()

"""Moves of jobs between workers, found by comparing one reading of the queue with the next."""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from api.fleet.document import Move
from shared.protocol.queue.occupancy import Holder, Occupancy

_MAX_MOVES = 200
"""Maximum number of moves in the log."""
_MAX_AGE = 300.0
"""Seconds for which a move stays in the log."""


@dataclass(slots=True)
class _Absent:
    """A job that is no longer claimed, and whether its return to the queue has been recorded."""

    holder: Holder
    queued: bool = False


class MoveLog:
    """Detects migrations, and returns of jobs to the queue."""

    def __init__(self) -> None:
        self._held: dict[str, dict[str, Holder]] = {}
        self._absent: dict[str, dict[str, _Absent]] = {}
        self._moves: deque[Move] = deque(maxlen=_MAX_MOVES)

    def tracked_jobs(self, model: str) -> list[str]:
        """Return the jobs of ``model`` whose presence in the queue the next reading must check."""
        return [*self._held.get(model, ()), *self._absent.get(model, ())]

    def observe(self, model: str, occupancy: Occupancy, alive: Collection[str], now: float) -> None:
        """Compare ``occupancy`` with the one before. ``alive`` are the workers with a heartbeat at ``now``."""
        absent = self._absent.get(model, {}) | {
            job: _Absent(holder) for job, holder in self._held.get(model, {}).items() if job not in occupancy.claimed
        }
        for job, holder in occupancy.claimed.items():
            before = self._held.get(model, {}).get(job) or (absent[job].holder if job in absent else None)
            if before is not None and before.attempt < holder.attempt:
                self._add(now, job, model, before, holder.worker, alive)
        self._absent[model] = {job: gone for job, gone in absent.items() if job in occupancy.queued}
        for job, gone in self._absent[model].items():
            if not gone.queued:
                gone.queued = True
                self._add(now, job, model, gone.holder, None, alive)
        self._held[model] = occupancy.claimed

    def recent(self, now: float) -> list[Move]:
        """Return the moves in the log, oldest first."""
        while self._moves and now - self._moves[0].time > _MAX_AGE:
            self._moves.popleft()
        return list(self._moves)

    def forget_jobs(self) -> None:
        """Forget the claimed jobs, because reading stops."""
        self._held.clear()
        self._absent.clear()

    def _add(
        self, now: float, job: str, model: str, before: Holder, target: str | None, alive: Collection[str]
    ) -> None:
        reason = "released" if before.worker in alive else "worker_lost"
        self._moves.append(
            Move(time=round(now, 3), request=job, model=model, source=before.worker, target=target, reason=reason)
        )

"""Gates: what an attempt passes, one after the other, before its sequence joins the engine's batch."""

from typing import Protocol

from worker.jobs.attempt import Attempt, Hold


class Gate(Protocol):
    """Makes attempts wait for others."""

    async def enter(self, attempt: Attempt) -> Hold:
        """Wait until ``attempt`` may run, and return what it holds from then on."""


NOTHING = Hold()
"""The hold of an attempt that holds up nobody."""

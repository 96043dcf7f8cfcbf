"""Prompts of claimed jobs, begun where possible while the claim is still under way.

A wake-up tells which job it is for (``shared/queue/enqueue.lua``), and making a prompt takes longer than claiming does.
"""

import asyncio

from shared.request import Job
from worker.prompt.interface import Answer, Prepared
from worker.prompt.process import PromptProcess

MOST = 8
"""Prompts that are begun early at a time: those behind them would have to wait in any case."""

_PATIENCE = 1.0
"""Seconds after which a job that was not claimed here went elsewhere."""


class Prompts:
    """Has each job's prompt made once, early or when it is wanted."""

    def __init__(self, process: PromptProcess, *, patience: float = _PATIENCE) -> None:
        """A prompt that nobody wants within ``patience`` seconds makes room for others."""
        self._process = process
        self._patience = patience
        self._begun: dict[str, tuple[asyncio.Future[Answer], float]] = {}
        """Those that nobody has wanted yet, and since when (the event loop's seconds), the oldest first."""

    def begin(self, job: Job) -> None:
        """Begin with the prompt of ``job``, unless too many others are begun."""
        now = asyncio.get_running_loop().time()
        self._give_up(now - self._patience)
        if job.id not in self._begun and len(self._begun) < MOST:
            self._begun[job.id] = self._process.ask(job.request), now

    async def of(self, job: Job) -> Prepared:
        """Return the prompt of ``job``, begun or not. Raises what :meth:`PromptProcess.prepared` raises."""
        begun = self._begun.pop(job.id, None)
        return await self._process.prepared(begun[0] if begun else self._process.ask(job.request))

    def _give_up(self, before: float) -> None:
        """Give up what was begun ``before`` that moment."""
        for job, (answer, since) in list(self._begun.items()):
            if since >= before:
                return
            del self._begun[job]
            answer.cancel()

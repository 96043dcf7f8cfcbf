"""Prompts of claimed jobs, made once for all jobs of a request, where possible while the claim is still under way.

A wake-up carries the job that it is for (``shared/protocol/queue/enqueue.lua``), and preparing a prompt takes longer
than claiming.
"""

import asyncio
from collections import OrderedDict

from shared.protocol.request import Job
from worker.prompt.interface import Prepared, PromptReply
from worker.prompt.process import PromptProcess

MOST = 8
"""Prompts that are begun early at a time: those behind them would have to wait in any case."""

_SHARED = 4
"""Prompts of requests with several jobs that are kept for the jobs that are claimed later."""

_PATIENCE = 1.0
"""Seconds after which a job that was not claimed here went elsewhere."""


class Prompts:
    """Has each request's prompt made once, early or when it is wanted."""

    def __init__(self, process: PromptProcess, *, patience: float = _PATIENCE) -> None:
        """A prompt that nobody wants within ``patience`` seconds makes room for others."""
        self._process = process
        self._patience = patience
        self._begun: dict[str, tuple[asyncio.Future[PromptReply], float]] = {}
        """Those that nobody has wanted yet, and since when (the event loop's seconds), the oldest first."""
        self._shared: OrderedDict[str, asyncio.Future[PromptReply]] = OrderedDict()
        """Those of requests with several jobs, the last one used at the end."""

    def begin(self, job: Job) -> None:
        """Begin with the prompt of ``job``, unless too many others are begun."""
        now = asyncio.get_running_loop().time()
        self._give_up(now - self._patience)
        name = job.shared_request or job.id
        if name not in self._begun and name not in self._shared and len(self._begun) < MOST:
            self._begun[name] = self._process.ask(job.request), now

    async def of(self, job: Job) -> Prepared:
        """Return the prompt of ``job``, begun or not. Raises what :meth:`PromptProcess.prepared` raises."""
        shared = job.shared_request
        answer = self._shared.pop(shared, None)
        if answer is None:
            begun = self._begun.pop(shared or job.id, None)
            answer = begun[0] if begun else self._process.ask(job.request)
        if not shared:
            return await self._process.prepared(answer)
        self._shared[shared] = answer
        if len(self._shared) > _SHARED:
            self._shared.popitem(last=False)
        # One job that is cancelled must not take the prompt from the others.
        return await self._process.prepared(asyncio.shield(answer))

    def _give_up(self, before: float) -> None:
        """Give up what was begun ``before`` that moment."""
        for job, (answer, since) in list(self._begun.items()):
            if since >= before:
                return
            del self._begun[job]
            answer.cancel()

"""The worker's registry record: what replicas and ``vinoqueue status`` know about it."""

import os
import time
from collections import deque

from shared.protocol.registry import TEXT, WorkerInfo
from shared.protocol.request import Sampling
from shared.protocol.version import READABLE
from shared.runtime.settings import WorkerSettings
from shared.runtime.version import VERSION
from worker.engine.backends import BACKENDS
from worker.engine.handle import CurrentEngine
from worker.jobs.active_jobs import ActiveJobs

_NO_DEFAULTS = Sampling()
_RATE_WINDOW = 5.0
"""Seconds over which the token rate is averaged."""


class RegistryRecord:
    """Assembles the worker's registry record from the state of its engine and its jobs."""

    def __init__(
        self,
        worker: str,
        names: tuple[str, ...],
        settings: WorkerSettings,
        engine: CurrentEngine,
        jobs: ActiveJobs,
        *,
        modalities: tuple[str, ...] = (TEXT,),
        sampling: Sampling = _NO_DEFAULTS,
    ) -> None:
        """``worker`` is this worker's id. ``names`` are the model's names, first the one that names its queue.

        ``modalities`` are what prompts may contain. ``sampling`` are the model's defaults.
        """
        self._worker = worker
        self._names = names
        self._settings = settings
        self._engine = engine
        self._jobs = jobs
        self._modalities = modalities
        self._sampling = sampling
        self._started = time.time()
        self._rate = _TokenRate()
        self.draining = False

    def current(self) -> WorkerInfo:
        engine, gauges = self._engine.info, self._engine.gauges
        return WorkerInfo(
            id=self._worker,
            host=self._settings.node,
            pid=os.getpid(),
            model=self._names[0],
            status="draining" if self.draining else self._engine.status,
            engine=engine.engine if engine else self._settings.engine,
            engine_reason=engine.reason if engine else "",
            prefix_caching=engine.prefix_caching if engine else True,
            devices=engine.devices if engine else (),
            device=engine.device if engine else BACKENDS[self._settings.engine].device or self._settings.device,
            fingerprint=engine.fingerprint if engine else "",
            started=self._started,
            slots=self._engine.slots,
            used=len(self._jobs),
            context_length=min(engine.context_length, engine.cache_tokens) if engine else 0,
            max_prompt=engine.max_prompt if engine else 0,
            cache_tokens=engine.cache_tokens if engine else 0,
            cache_usage=gauges.cache_usage,
            engine_requests=gauges.requests,
            batch=gauges.scheduled,
            steps=gauges.steps,
            tokens=gauges.tokens,
            lost_rows=gauges.lost_rows,
            preemptions=gauges.preemptions,
            tokens_per_second=self._rate.per_second(gauges.tokens),
            requests=self._jobs.total,
            engine_restarts=self._engine.restarts,
            lease=self._settings.lease,
            version=VERSION,
            protocols=READABLE,
            detail=self._engine.stage,
            aliases=self._names[1:],
            modalities=self._modalities,
            vocabulary=engine.vocabulary if engine else "",
            logits=engine.logits if engine else False,
            temperature=self._sampling.temperature,
            top_p=self._sampling.top_p,
        )


class _TokenRate:
    """Tokens per second over the rate window."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])

    def per_second(self, tokens: int) -> float:
        """Record the current token count and return the rate. A lower count than before means a new engine."""
        now = time.monotonic()
        if tokens < self._counts[-1][1]:
            self._counts.clear()
        self._counts.append((now, tokens))
        while now - self._counts[0][0] > _RATE_WINDOW and len(self._counts) > 2:
            self._counts.popleft()
        since, tokens_then = self._counts[0]
        elapsed = now - since
        return (tokens - tokens_then) / elapsed if elapsed > 0 else 0.0

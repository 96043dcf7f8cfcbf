"""The worker's registry record: what replicas and ``vinoqueue status`` know about it."""

import os
import time
from collections import deque
from dataclasses import dataclass, field

from shared.protocol.formats import ModelFormats
from shared.protocol.registry import GENERATE, TEXT, WorkerInfo
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


@dataclass(slots=True, eq=False)
class RegistryRecord:
    """Assembles the worker's registry record from the state of its engine and its jobs."""

    worker: str
    names: tuple[str, ...]
    """The model's names, first the one that names its queue."""
    settings: WorkerSettings
    engine: CurrentEngine
    jobs: ActiveJobs
    modalities: tuple[str, ...] = (TEXT,)
    """What prompts may contain."""
    kinds: tuple[str, ...] = (GENERATE,)
    """The kinds of work that it serves."""
    sampling: Sampling = _NO_DEFAULTS
    """The model's defaults."""
    formats: ModelFormats | None = None
    draining: bool = False
    _started: float = field(default_factory=time.time)
    _rate: _TokenRate = field(default_factory=_TokenRate)

    def current(self) -> WorkerInfo:
        engine, gauges = self.engine.info, self.engine.gauges
        return WorkerInfo(
            id=self.worker,
            host=self.settings.node,
            pid=os.getpid(),
            model=self.names[0],
            status="draining" if self.draining else self.engine.status,
            engine=engine.engine if engine else self.settings.engine,
            engine_reason=engine.reason if engine else "",
            prefix_caching=engine.prefix_caching if engine else True,
            devices=engine.devices if engine else (),
            device=engine.device if engine else BACKENDS[self.settings.engine].device or self.settings.device,
            fingerprint=engine.fingerprint if engine else "",
            started=self._started,
            slots=self.engine.slots,
            used=len(self.jobs),
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
            drafted=gauges.drafted,
            accepted=gauges.accepted,
            tokens_per_second=self._rate.per_second(gauges.tokens),
            requests=self.jobs.total,
            engine_restarts=self.engine.restarts,
            lease=self.settings.lease,
            version=VERSION,
            protocols=READABLE,
            detail=self.engine.stage,
            aliases=self.names[1:],
            modalities=self.modalities,
            kinds=self.kinds,
            vocabulary=engine.vocabulary if engine else "",
            logits=engine.logits if engine else False,
            temperature=self.sampling.temperature,
            top_p=self.sampling.top_p,
            max_tokens=self.sampling.max_tokens or 0,
            formats=self.formats,
        )

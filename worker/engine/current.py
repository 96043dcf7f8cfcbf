"""The engine that runs this worker's jobs, and what is known about it."""

import asyncio
from typing import NamedTuple

from shared.protocol.registry import WorkerStatus
from worker.engine.interface import EngineInfo, Gauges
from worker.engine.process import EngineProcess

_NO_GAUGES = Gauges(requests=0, scheduled=0, cache_usage=0.0, cache_bytes=0, steps=0, tokens=0)


class LoadedEngine(NamedTuple):
    """An engine process with a loaded model."""

    process: EngineProcess
    info: EngineInfo


class CurrentEngine:
    """The current engine, if one is loaded. Between the end of one and the next, jobs wait in :meth:`wait`."""

    def __init__(self, *, slots: int) -> None:
        """``slots`` is the number of slots to report until an engine is loaded."""
        self._loaded: LoadedEngine | None = None
        self._arrived = asyncio.Event()
        self.slots = slots
        """Slots of the current engine, or of the last one."""
        self.gauges = _NO_GAUGES
        self.restarts = 0
        self.stage = "starting"
        """Human-readable: the stage of loading, or why no engine is loaded. Empty while one is."""

    @property
    def info(self) -> EngineInfo | None:
        """Properties of the current engine; None while none is loaded."""
        return self._loaded.info if self._loaded else None

    @property
    def capacity(self) -> int:
        """How many jobs may run now: 0 while no engine is loaded."""
        return self.slots if self._loaded else 0

    @property
    def status(self) -> WorkerStatus:
        """``failing`` from the end of an engine until the next one is loaded."""
        if self._loaded:
            return "serving"
        return "failing" if self.restarts else "loading"

    async def wait(self) -> LoadedEngine:
        """Return the current engine, as soon as there is one."""
        while self._loaded is None:
            await self._arrived.wait()
        return self._loaded

    def set(self, loaded: LoadedEngine) -> None:
        """Run jobs in ``loaded`` from now on."""
        self._loaded = loaded
        self.slots = loaded.info.slots
        self.gauges = _NO_GAUGES
        self.stage = ""
        self._arrived.set()

    def clear(self) -> None:
        """Record that no engine is loaded."""
        self._loaded = None
        self.gauges = _NO_GAUGES
        self._arrived.clear()

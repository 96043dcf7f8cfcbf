"""One model on this node: its worker process, from the start to the exit, and its failures."""

import asyncio
import logging
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping

from shared.protocol.model_commands import ModelCommand
from shared.protocol.registry import FINDING_FILES, DeclaredModel, UnloadCause, WorkerInfo
from shared.runtime.children import Child
from shared.runtime.processes import exit_description, module_command
from shared.runtime.settings import variable
from worker.model.source import MAKING_WEIGHTS
from worker.node.catalogue import CatalogueEntry
from worker.node.devices import HOST, Memory
from worker.node.memory import Measurement, resident_bytes
from worker.node.policy import Residence

logger = logging.getLogger(__name__)

_FIRST_PAUSE = 5.0
_LONGEST_PAUSE = 600.0
"""Seconds before a model that has failed is loaded again; doubled after each failure."""

_MORE_MEMORY = 1.5
"""Factor of the memory of a model whose worker, or engine, was killed while it loaded."""

_HEALTHY = 60.0
"""Seconds after which the exit of a worker says nothing about the next load."""

_STUCK = 30.0
"""Seconds for which a worker may fail to get its engine running before the load counts as failed."""


class Resident:
    """A model of the catalogue on this node, loaded or not. Times are monotonic seconds."""

    def __init__(
        self,
        entry: CatalogueEntry,
        memory: Memory,
        measured: Measurement | None,
        *,
        expected: Measurement | None,
        capacity: Memory,
        wake: Callable[[], None],
    ) -> None:
        """``memory`` is what it takes, and ``capacity`` what all models of the node may take together. ``measured`` is
        from its last load, ``expected`` from its files. ``wake`` is called when its worker has exited."""
        self.entry = entry
        self.memory = memory
        self.measured = measured
        self._expected = expected
        self._capacity = capacity
        self._wake = wake
        self.here: Residence = "absent"
        self.worker = ""
        """Id of its worker, or empty."""
        self.reason = ""
        self.loads = 0
        self.waiting_since: float | None = None
        self.waited = 0.0
        """Seconds for which requests wait while no worker in the fleet serves it."""
        self.requested_since: float | None = None
        """When an operator commanded to load it; ``None`` when a worker serves it, or it has failed."""
        self.room: Memory | None = None
        """While it waits for memory: what models leave that never give way."""
        self.has_lease = False
        self._command = ""
        self._failures = 0
        """Failures in a row."""
        self._failed = 0
        self._unloads: Counter[str] = Counter()
        self._resident_before = 0.0
        """Seconds for which earlier workers had it loaded."""
        self._blocked_until = 0.0
        self._problem = ""
        self._stage = ""
        """What the worker does while it loads the model."""
        self._since = 0.0
        self._last_used = 0.0
        self._failing_since: float | None = None
        self._child: Child | None = None
        self._termination_log = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        """Where its worker says why it cannot serve the model."""
        self._ended: asyncio.Task[None] | None = None

    async def load(self, worker: str, environment: Mapping[str, str], reason: str) -> None:
        """Start the worker with the id ``worker``."""
        logger.info("loads model %s: %s", self.entry.name, reason)
        self.here, self.worker, self.reason = "loading", worker, reason
        self.loads += 1
        self._since = self._last_used = time.monotonic()
        self._failing_since = None
        # The file has no name that a killed node would leave behind.
        termination_log = f"/proc/{os.getpid()}/fd/{self._termination_log.fileno()}"
        environment = {**environment, variable("termination_log"): termination_log}
        self._child = Child(f"worker of {self.entry.name}", module_command("cli.main", "worker"), environment)
        try:
            await self._child.start()
        except OSError as error:
            self._fail(f"its worker does not start: {error}")
            return
        self._ended = asyncio.create_task(self._watch(self._child), name=f"worker of {self.entry.name}")

    def observe(self, info: WorkerInfo | None) -> Measurement | None:
        """Take note of the worker's registry record. Return a measurement when the model has just been loaded."""
        now = time.monotonic()
        if info is None or self.here in ("absent", "unloading"):
            return None
        self._stage = info.detail if info.status == "loading" else ""
        if self._stage.startswith((FINDING_FILES, MAKING_WEIGHTS)):
            self._since = now  # what the first load takes longer says nothing about the next one
        if info.used > 0:
            self._last_used = now
        if info.status == "failing":
            self._failing_since = self._failing_since or now
            if now - self._failing_since > _STUCK:
                logger.warning("model %s does not get to work: %s", self.entry.name, info.detail)
                self._problem = info.detail
                self.unload("failed", "it fails")
            return None
        self._failing_since = None
        if info.status != "serving" or self.here == "loaded":
            return None
        seconds = now - self._since
        self.here, self._since, self._last_used, self._failures = "loaded", now, now, 0
        assert self._child is not None
        memory = resident_bytes(self._child.pid or 0) or self.memory[HOST]
        logger.info("model %s is loaded after %.1f s (%.1f GB)", self.entry.name, seconds, memory / 1e9)
        return Measurement(
            memory=memory,
            load_seconds=round(seconds, 2),
            context_length=info.context_length,
            fingerprint=info.fingerprint,
            modalities=info.modalities,
            kinds=info.kinds,
            temperature=info.temperature,
            top_p=info.top_p,
        )

    def succeed(self, before: "Resident") -> None:
        """Continue the counts and the lease of the model with its earlier entry, and the command that it has obeyed."""
        self.has_lease = before.has_lease
        self.loads, self._failed, self._command = before.loads, before._failed, before._command
        self._unloads = before._unloads
        self._resident_before = before._resident_seconds

    def obey(self, command: ModelCommand | None) -> None:
        """Obey an operator's command, once. One to load it ends the pause after a failure."""
        if command is None:
            self.requested_since = None
        elif command.id != self._command:
            self._command = command.id
            if command.action == "unload":
                self.requested_since = None
                self.unload("operator", "an operator has unloaded it")
            else:
                self.requested_since = time.monotonic()
                self._failures, self._blocked_until = 0, 0.0

    def unload(self, cause: UnloadCause, reason: str) -> None:
        """Have the worker drain and exit; requests that take too long go on when the model is back, or elsewhere."""
        if self.here in ("loading", "loaded"):
            logger.info("unloads model %s: %s", self.entry.name, reason)
            self._unloads[cause] += 1
            self._resident_before = self._resident_seconds
            self.here, self.reason = "unloading", reason
            assert self._child is not None
            self._child.terminate()

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    async def ended(self) -> None:
        """Wait until there is no worker."""
        if self._ended is not None:
            await asyncio.shield(self._ended)

    async def _watch(self, child: Child) -> None:
        how = f"its worker {exit_description(await child.wait())}"
        how = self._reason_given() or how
        self._wake()
        if self.here == "unloading" and not self._problem:
            self.here, self.worker = "absent", ""
            return
        killed = self.here == "loading" and "SIGKILL" in how
        if killed:
            # Most likely by the kernel, for lack of memory: it needs more than was expected.
            self.memory = {**self.memory, HOST: int(_MORE_MEMORY * self.memory[HOST])}
        self._fail(self._problem or how)

    def _reason_given(self) -> str:
        """Return why the worker could not serve the model, as it says itself, and forget it."""
        self._termination_log.seek(0)
        reason = self._termination_log.read()
        self._termination_log.seek(0)
        self._termination_log.truncate()
        return reason

    def _fail(self, reason: str) -> None:
        healthy = self.here == "loaded" and self.residence > _HEALTHY
        self._resident_before = self._resident_seconds
        self._failed += 1
        pause = 0.0 if healthy else min(_FIRST_PAUSE * 2**self._failures, _LONGEST_PAUSE)
        self._failures = 0 if healthy else self._failures + 1
        self._blocked_until = time.monotonic() + pause
        self._problem = ""
        self.requested_since = None
        self.here, self.worker = "absent", ""
        too_large = bool(self._lacking)
        reason = reason.rstrip(".")
        self.reason = reason if too_large else f"{reason}; it is loaded again in {pause:.0f} s at the earliest"
        logger.warning("model %s failed: %s", self.entry.name, self._too_large() if too_large else self.reason)

    @property
    def blocked(self) -> bool:
        """Whether it is too large for this node, or has failed and waits for its next attempt."""
        return bool(self._lacking) or time.monotonic() < self._blocked_until

    @property
    def idle(self) -> float:
        """Seconds since its worker had a request."""
        return time.monotonic() - self._last_used

    @property
    def residence(self) -> float:
        """Seconds since it is loaded, or began to load."""
        return time.monotonic() - self._since

    @property
    def _resident_seconds(self) -> float:
        return self._resident_before + (self.residence if self.here == "loaded" else 0.0)

    def declared(self) -> DeclaredModel:
        """Return its part of the node's registry record."""
        status = {"absent": "failed" if self.blocked else "unloaded"}.get(self.here, self.here)
        known, own = self.measured or self._expected, self.entry.defaults
        return DeclaredModel(
            name=self.entry.name,
            source=self.entry.source,
            digest=self.entry.digest,
            aliases=self.entry.aliases,
            keep=self.entry.keep,
            least=self.entry.least,
            status=status,
            detail=self._detail(),
            memory=self.memory[HOST],
            device_memory={place: size for place, size in self.memory.items() if place != HOST},
            load_seconds=known.load_seconds if known else 0.0,
            ready_in=round(max(known.load_seconds - self.residence, 0.0), 1) if known and status == "loading" else 0.0,
            loads=self.loads,
            failures=self._failed,
            unloads={**self._unloads},
            resident_seconds=round(self._resident_seconds, 1),
            waited=round(self.waited, 1),
            command=self._command,
            context_length=known.context_length if known else 0,
            fingerprint=known.fingerprint if known else "",
            modalities=known.modalities if known else (),
            kinds=known.kinds if known else (),
            temperature=own.get("temperature", known.temperature if known else None),
            top_p=own.get("top_p", known.top_p if known else None),
            max_tokens=own.get("max_tokens", 0),
        )

    def _detail(self) -> str:
        if self._lacking:
            return self._too_large()
        if self.room is not None:
            return self._too_large(self.room) if _lacking(self.memory, self.room) else "other models use the memory"
        return f"{self.reason}; {self._stage}" if self.here == "loading" and self._stage else self.reason

    @property
    def _lacking(self) -> str:
        """The place that is too small for it, or empty."""
        return _lacking(self.memory, self._capacity)

    def _too_large(self, room: Memory | None = None) -> str:
        """Say what it lacks of ``room``, which others leave that are always loaded; by default, of all memory."""
        place = _lacking(self.memory, room or self._capacity)
        needed, capacity = self.memory[place] / 1e9, self._capacity[place] / 1e9
        where, flag = ("this host", "--memory") if place == HOST else (place, "--device-memory")
        guess = "" if self.measured or self.entry.memory else " (estimated; its entry may say 'memory')"
        together = f"the models of {where} may take {capacity:.2f} GB together ({flag})"
        reason = f"it needs {needed:.2f} GB{guess}, and {together}"
        if room is not None:
            reason += f", of which those that are always loaded leave {room[place] / 1e9:.2f} GB"
        return f"{self.reason}; {reason}" if self._failures else reason


def _lacking(memory: Memory, room: Memory) -> str:
    """Return the place where ``memory`` is more than ``room``, or an empty string."""
    return next((place for place, size in memory.items() if size > room[place]), "")

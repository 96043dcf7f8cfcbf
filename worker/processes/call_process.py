"""A subprocess that serves one call at a time, each with a deadline, and is replaced when it hangs or crashes."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from shared.protocol.errors import Problem, ProblemKind, RequestRefused, refuse
from worker.processes.child import ChildProcess, CpuTime, LoadError, LoadInterrupted, cpu_seconds
from worker.processes.fair_queue import FairQueue, ShareUsedUp
from worker.processes.messages import CallRefused, Loaded, LoadFailed, Replied

_log = logging.getLogger(__name__)

_DEADLINE_CHECKS = 10
"""How often the time of a call is checked before its deadline."""

_MAX_CRASHES = 2
"""Crashes after which a call fails. The first one may not be its fault: the process may already have been failing."""

_MAX_INTERRUPTED_LOADS = 10
"""Consecutive replacements that die while they load until the subprocess is unavailable. The first child of all must
load: if it dies, the settings or the installation are at fault."""

Call = TypeVar("Call")
Reply = TypeVar("Reply")
Message = Replied[msgspec.Raw] | CallRefused | Loaded | LoadFailed
"""What the subprocess sends."""

_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


class ServiceUnavailable(Exception):
    """The subprocess can't be loaded, or has been stopped. The call itself is not at fault."""


class PendingCall(Generic[Call, Reply]):
    """A call that waits for its reply."""

    def __init__(self, call: Call, tenant: str, deadline: float) -> None:
        self.call = call
        self.tenant = tenant
        self.deadline = deadline
        self.seconds = 0.0
        """CPU time that it is known to have used."""
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.crashes = 0
        """How often the subprocess has crashed while it served this call."""

    def deliver(self, reply: Reply) -> None:
        if not self.reply.done():
            self.reply.set_result(reply)

    def fail(self, error: Exception) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)
            self.reply.exception()  # mark as retrieved: a caller that no longer waits is not an error to log


@dataclass(frozen=True, kw_only=True)
class ServiceSpec(Generic[Reply]):
    """What a service runs, and how its calls fail."""

    module: str
    """The entry point: it calls :func:`worker.processes.channel.serve`."""
    options: msgspec.Struct
    reply: type[Reply]
    name: str
    """Completes error messages."""
    deadline: float
    """CPU time in seconds of a call that has no deadline of its own."""
    on_timeout: Callable[[float], Problem]
    """Returns the problem of a call that has exceeded this deadline."""
    on_crash: Problem
    """The problem of a call that crashes the subprocess twice."""
    load_deadline: float = 120.0
    """Seconds within which the subprocess must load."""
    check_loaded: Callable[[], None] = lambda: None
    """Called when a subprocess has loaded, or could not load. Raises :class:`LoadError` if it must not be used."""


class CallProcess(Generic[Call, Reply]):
    """Serves calls in a subprocess, one at a time, in fair order by tenant (:class:`FairQueue`).

    With one call at a time, the culprit of a hang or crash is known. A call that exceeds its deadline is refused
    and the subprocess is replaced. Time that it waits for a CPU does not count: on an overloaded machine, a call is
    slow, not at fault. After a crash the call is tried once more. Waiting calls continue in the new subprocess.
    """

    def __init__(
        self,
        spec: ServiceSpec[Reply],
        *,
        essential: bool = False,
        strict: bool = False,
        on_culprit: Callable[[str], None] = lambda tenant: None,
    ) -> None:
        """While an ``essential`` process is not running, its calls fail with :class:`ServiceUnavailable`. Any other is
        started by the next call; if that fails, the call is refused. ``strict`` is that of the queue. ``on_culprit`` is
        called with the tenant of a call that has hung or crashed the subprocess.
        """
        self._spec = spec
        self._name = spec.name
        self._decoder: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(spec.reply)
        self._essential = essential
        self._on_culprit = on_culprit
        self._queue: FairQueue[PendingCall[Call, Reply]] = FairQueue(strict=strict)
        self._current: PendingCall[Call, Reply] | None = None
        self._deadline_timer: asyncio.TimerHandle | None = None
        """Runs while there is a current call."""
        self._child: ChildProcess[Message, Call, Loaded] | None = None
        """The latest child."""
        self._serving: ChildProcess[Message, Call, Loaded] | None = None
        """The child, while it takes calls."""
        self._loaded: asyncio.Future[None] | None = None
        self._replaced_for: str | None = None
        """The tenant whose call has ended the last child, until its replacement has loaded."""
        self._interrupted_loads = 0
        """Consecutive children that have died while they loaded."""
        self._task: asyncio.Task[None] | None = None
        self._failure: ServiceUnavailable | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the latest child, if one was started."""
        return self._child.pid if self._child else None

    @property
    def running(self) -> bool:
        """Whether it was started, and has neither failed nor been stopped since."""
        return self._task is not None and not self._task.done()

    @property
    def busy(self) -> bool:
        return self._current is not None

    def start(self) -> None:
        """Start the subprocess, for the first time or after a failure. Returns at once.

        Failures are raised by :meth:`ready` and :meth:`ended`, and fail the replies of calls.
        """
        self._failure = None
        self._loaded = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(), name=self._name)

    async def ready(self) -> None:
        """Wait until the first child is loaded. Raises :class:`ServiceUnavailable`."""
        if self._loaded is None:
            raise ServiceUnavailable(f"the {self._name} has not been started")
        await asyncio.shield(self._loaded)

    async def ended(self) -> None:
        """Wait until the subprocess takes no more calls. Raises :class:`ServiceUnavailable` unless stopped."""
        if self._task is None:
            raise ServiceUnavailable(f"the {self._name} has not been started")
        await asyncio.wait([self._task])
        if self._failure is not None:
            raise self._failure

    def submit(self, pending: PendingCall[Call, Reply]) -> None:
        """Queue a call. If its reply is cancelled before the call is sent, the call is withdrawn.

        The reply fails with :class:`RequestRefused` or, if the process is essential, :class:`ServiceUnavailable`.
        """
        if not self.running and not self._essential:
            self.start()
        if not self.running:
            pending.fail(ServiceUnavailable(f"the {self._name} is not running"))
            return
        try:
            self._queue.add(pending.tenant, pending)
        except ShareUsedUp as reason:
            pending.fail(self._share_used_up(reason))
        self._send_next()

    def withdraw(self, tenant: str) -> list[PendingCall[Call, Reply]]:
        return self._queue.remove(tenant)

    async def stop(self) -> None:
        """End the subprocess. Pending calls fail."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        reason = ServiceUnavailable(f"the {self._name} has been stopped")
        try:
            while True:
                await self._run_child()
        except ServiceUnavailable as error:
            reason = self._failure = error
            if not self._essential:
                _log.warning("the %s is unavailable: %s", self._name, error)
        finally:
            self._fail_all(reason)

    def _fail_all(self, reason: ServiceUnavailable) -> None:
        failure = reason if self._essential else refuse(ProblemKind.INTERNAL, f"A part of the worker failed: {reason}.")
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_exception(reason)
            # Mark as retrieved: without a caller in ready(), the exception still reaches the calls.
            self._loaded.exception()
        if (current := self._take_current()) is not None:
            current.fail(failure)
        for pending in self._queue.clear():
            pending.fail(failure)

    async def _run_child(self) -> None:
        """Start a child and serve calls until it ends. Raises :class:`ServiceUnavailable` if it does not load."""
        child: ChildProcess[Message, Call, Loaded] = ChildProcess(
            self._spec.module,
            self._spec.options,
            _decoder,
            name=self._name,
            ready=Loaded,
            on_message=self._on_message,
        )
        self._child = child
        try:
            if not await self._load(child):
                return
            if self._replaced_for is not None and child.pid is not None:
                with suppress(OSError, IndexError):
                    self._queue.charge(self._replaced_for, cpu_seconds(child.pid))
            self._replaced_for = None
            self._serving = child
            self._send_next()
            await child.ended()
            if (current := self._take_current()) is not None:
                self._retry(current)
        finally:
            self._serving = None
            child.kill()
            await child.stop()

    async def _load(self, child: ChildProcess[Message, Call, Loaded]) -> bool:
        """Start ``child``. Returns whether it has loaded; if not, another one may."""
        try:
            await child.start()
        except OSError as error:
            raise ServiceUnavailable(f"the {self._name} can't be started: {error}") from error
        try:
            async with asyncio.timeout(self._spec.load_deadline):
                try:
                    await child.loaded()
                finally:
                    self._spec.check_loaded()
        except LoadInterrupted as error:
            self._interrupted_loads += 1
            if self._loaded is not None and self._loaded.done() and self._interrupted_loads < _MAX_INTERRUPTED_LOADS:
                return False
            raise ServiceUnavailable(str(error)) from error
        except LoadError as error:
            raise ServiceUnavailable(str(error)) from error
        except TimeoutError:
            raise ServiceUnavailable(f"the {self._name} did not load within {self._spec.load_deadline:g} s") from None
        self._interrupted_loads = 0
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_result(None)
        return True

    def _send_next(self) -> None:
        """Send the next call that was not cancelled, unless one is being served."""
        child = self._serving
        if child is None or self._current is not None:
            return
        while (pending := self._queue.take()) is not None:
            if not pending.reply.done():
                self._current = pending
                pending.seconds = 0.0
                child.send(pending.call)
                if child.pid is not None:
                    # Reading the CPU time costs as much as a short call, so the first check comes later.
                    self._deadline_timer = asyncio.get_running_loop().call_later(
                        pending.deadline / _DEADLINE_CHECKS,
                        lambda pid: self._schedule_check(CpuTime(pid), pending),
                        child.pid,
                    )
                return

    def _schedule_check(self, cpu_time: CpuTime, current: PendingCall[Call, Reply]) -> None:
        """Check the time of the current call in a moment."""
        loop = asyncio.get_running_loop()
        self._deadline_timer = loop.call_later(
            current.deadline / _DEADLINE_CHECKS, self._check_deadline, cpu_time, current, loop.time()
        )

    def _check_deadline(self, cpu_time: CpuTime, current: PendingCall[Call, Reply], since: float) -> None:
        current.seconds += cpu_time.usable(asyncio.get_running_loop().time() - since)
        if current.seconds < current.deadline:
            self._schedule_check(cpu_time, current)
        else:
            self._on_deadline()

    def _on_message(self, message: Message) -> None:
        # A call that timed out may still be replied to while the child is being killed.
        if (current := self._take_current()) is None:
            return
        match message:
            case Replied(body, seconds):
                self._queue.charge(current.tenant, seconds)
                current.deliver(self._decoder.decode(body))
            case CallRefused(problem, seconds):
                self._queue.charge(current.tenant, seconds)
                current.fail(RequestRefused(problem))
        # Later, so that the caller's next call, if it has one, is queued before the next one is chosen.
        asyncio.get_running_loop().call_soon(self._send_next)

    def _on_deadline(self) -> None:
        if (current := self._take_current()) is not None:
            self._charge_replacement(current)
            current.fail(RequestRefused(self._spec.on_timeout(current.deadline)))
            self._on_culprit(current.tenant)
        if self._serving is not None:
            self._serving.kill()
            self._serving = None

    def _take_current(self) -> PendingCall[Call, Reply] | None:
        """Clear and return the current call, and stop its deadline timer."""
        current, self._current = self._current, None
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        return current

    def _retry(self, current: PendingCall[Call, Reply]) -> None:
        self._charge_replacement(current)
        current.crashes += 1
        if current.crashes < _MAX_CRASHES:
            self._queue.add_first(current.tenant, current)
        else:
            current.fail(RequestRefused(self._spec.on_crash))
            self._on_culprit(current.tenant)

    def _charge_replacement(self, current: PendingCall[Call, Reply]) -> None:
        """Charge the tenant of a call that has ended the child for it, and soon for the start of the next child."""
        self._queue.charge(current.tenant, current.seconds)
        self._replaced_for = current.tenant

    def _share_used_up(self, reason: ShareUsedUp) -> RequestRefused:
        message = (
            f"Requests with this key have used up their share of the CPU time of the worker's {self._name}. Please try "
            "again later."
        )
        return refuse(ProblemKind.RATE_LIMITED, message, retry_after=reason.retry_after)

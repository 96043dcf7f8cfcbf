"""A service that a subprocess provides by replying to calls, and that tenants share.

The subprocess's side is :func:`worker.processes.channel.serve`.
"""

import asyncio
from dataclasses import replace
from typing import TypeVar

from worker.processes.call_process import CallProcess, PendingCall, ServiceSpec

_ISOLATION = 60.0
"""Seconds for which a tenant is isolated."""

Call = TypeVar("Call")
Reply = TypeVar("Reply")


class Service(CallProcess[Call, Reply]):
    """Serves the calls of tenants.

    A tenant whose call hangs or crashes the process is isolated for a while: a second process, which is started only
    then, serves its calls, within their budget. So other tenants do not wait for further such calls, nor for the
    replacements of the process. Requests without a key are never isolated: there are no other tenants.
    """

    def __init__(self, spec: ServiceSpec[Reply], *, essential: bool = False) -> None:
        """``essential`` is that of the :class:`CallProcess`."""
        super().__init__(spec, essential=essential, on_culprit=self._isolate)
        self._second: CallProcess[Call, Reply] = CallProcess(
            replace(spec, name=f"second {spec.name}"), strict=True, on_culprit=self._isolate
        )
        self._isolated: dict[str, asyncio.TimerHandle] = {}
        """Isolated tenants, and the timer that ends the isolation."""
        self._stopping: asyncio.Task[None] | None = None
        """Stops the second process when no tenant is isolated any more."""

    def call(self, call: Call, tenant: str, deadline: float | None = None) -> asyncio.Future[Reply]:
        """Queue a call of ``tenant`` and return its future reply. ``deadline`` replaces that of the service.

        Cancelling the future withdraws a call that was not sent yet. The future fails with :class:`RequestRefused` or,
        if the service is essential, :class:`ServiceUnavailable`.
        """
        pending: PendingCall[Call, Reply] = PendingCall(call, tenant, deadline or self._spec.deadline)
        (self._second if tenant in self._isolated else self).submit(pending)
        return pending.reply

    async def stop(self) -> None:
        """End the service. Pending calls fail."""
        for timer in self._isolated.values():
            timer.cancel()
        await self._second.stop()
        await super().stop()

    def _isolate(self, tenant: str) -> None:
        if not tenant:
            return
        if (timer := self._isolated.get(tenant)) is not None:
            timer.cancel()
        self._isolated[tenant] = asyncio.get_running_loop().call_later(_ISOLATION, self._release, tenant)
        for pending in self.withdraw(tenant):
            self._second.submit(pending)

    def _release(self, tenant: str) -> None:
        """End the isolation of a tenant. Without isolated tenants, the second process ends if it is idle."""
        del self._isolated[tenant]
        for pending in self._second.withdraw(tenant):
            self.submit(pending)
        if not self._isolated and not self._second.busy:
            self._stopping = asyncio.create_task(self._second.stop(), name=f"end of the second {self._spec.name}")

"""``asyncio.timeout`` of Python 3.11.0 to 3.11.2, mended. Debian 12 ships 3.11.2."""

import asyncio
from types import TracebackType


class _Timeout(asyncio.Timeout):  # type: ignore[misc]  # it is final, and the only one that asyncio makes
    async def __aenter__(self) -> "_Timeout":
        await super().__aenter__()
        self._cancelled_before = self._current().cancelling()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, traceback)
        expired = self.expired() and kind is asyncio.CancelledError
        if expired and self._current().cancelling() <= self._cancelled_before:
            raise TimeoutError from error

    @staticmethod
    def _current() -> asyncio.Task[object]:
        task = asyncio.current_task()
        assert task is not None
        return task


def mend_timeouts() -> None:
    """Have an expired timeout raise :class:`TimeoutError` also in a task that was cancelled before the timeout began.

    Before Python 3.11.3 it raises :class:`asyncio.CancelledError` there (python/cpython#102780). redis-py sets timeouts
    for its own checks, so a task could not release anything in the store after its cancellation.
    """
    asyncio.timeouts.Timeout = _Timeout  # type: ignore[misc]

"""Logging of store outages: one line per process when an outage begins, and one when it has ended.

Several parts of a process use the store, and each retries a few times per second. They report failures and successes
here. Failures that are not retried should be logged at :attr:`Outage.level`, because they are expected in an outage.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from redis.exceptions import ConnectionError, RedisError, TimeoutError

logger = logging.getLogger(__name__)

_Value = TypeVar("_Value")

_NOT_REACHED = (ConnectionError, TimeoutError, OSError)
"""Errors that an outage explains; others are specific to a part."""


class Outage:
    """The parts of a process for which the store currently fails."""

    def __init__(self) -> None:
        self._failing: set[str] = set()
        self._reported: set[str] = set()
        self._since = 0.0

    @property
    def level(self) -> int:
        """The log level for failures that are not retried: WARNING, or DEBUG during an outage."""
        return logging.DEBUG if self._failing else logging.WARNING

    def failed(self, part: str, error: Exception) -> None:
        """Report that a command of ``part`` failed and will be retried."""
        if not self._failing:
            self._since = time.monotonic()
            logger.warning("the store fails (%s): %s: %s", part, type(error).__name__, error)
            self._reported.add(part)
        elif not isinstance(error, _NOT_REACHED) and part not in self._reported:
            # Not explained by an outage, for example a command that the ACL forbids.
            logger.warning("the store fails (%s): %s: %s", part, type(error).__name__, error)
            self._reported.add(part)
        self._failing.add(part)

    def succeeded(self, part: str) -> None:
        """Report that a command of ``part`` succeeded."""
        if part not in self._failing:
            return
        self._failing.discard(part)
        if not self._failing:
            self._reported.clear()
            logger.warning("the store works again after %.1f s", time.monotonic() - self._since)

    @contextmanager
    def reported(self, part: str) -> Iterator[None]:
        """Report how a command of ``part`` ends. Its error goes no further."""
        try:
            yield
            self.succeeded(part)
        except (RedisError, OSError) as error:
            self.failed(part, error)


async def when_reachable(work: Callable[[], Awaitable[_Value]], retry: float = 1.0) -> _Value:
    """Return what ``work`` returns; repeat it after ``retry`` seconds while the store is unreachable, which is reported
    by other parts."""
    while True:
        try:
            return await work()
        except (RedisError, OSError) as error:
            logger.debug("the store is unreachable, trying again in %g s: %s", retry, error)
            await asyncio.sleep(retry)


store = Outage()
"""The state of this process."""

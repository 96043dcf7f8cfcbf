"""The store's outages in the log: one line when a process notices, and one when all of its parts are served again.

Several parts of a process use the store, and each retries a few times a second. They report here how that goes. What is
not retried should be logged at :attr:`Outage.level`, as it is no news while the store is away.
"""

import logging
import time

from redis.exceptions import ConnectionError, TimeoutError

logger = logging.getLogger(__name__)

_NOT_REACHED = (ConnectionError, TimeoutError, OSError)
"""What every part gets when the store is away; other errors are a part's own."""


class Outage:
    """Which parts of a process the store fails at present."""

    def __init__(self) -> None:
        self._failing: set[str] = set()
        self._told: set[str] = set()
        self._since = 0.0

    @property
    def level(self) -> int:
        """At which level to log a failure that is not tried again: WARNING, or DEBUG while an outage is known."""
        return logging.DEBUG if self._failing else logging.WARNING

    def failed(self, part: str, error: Exception) -> None:
        """Note that ``part`` was failed by the store and will try again."""
        if not self._failing:
            self._since = time.monotonic()
            logger.warning("the store fails (%s): %s: %s", part, type(error).__name__, error)
            self._told.add(part)
        elif not isinstance(error, _NOT_REACHED) and part not in self._told:
            # Such as a command that the access rules forbid: not explained by an outage.
            logger.warning("the store fails (%s): %s: %s", part, type(error).__name__, error)
            self._told.add(part)
        self._failing.add(part)

    def served(self, part: str) -> None:
        """Note that the store has served ``part``."""
        if part not in self._failing:
            return
        self._failing.discard(part)
        if not self._failing:
            self._told.clear()
            logger.warning("the store works again after %.1f s", time.monotonic() - self._since)


store = Outage()
"""That of this process."""

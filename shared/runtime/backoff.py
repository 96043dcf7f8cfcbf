"""Exponential backoff: the pauses before something that fails is tried again."""

HEALTHY_AFTER = 60.0
"""Seconds after which an attempt that ends counts as the first failure again."""


class Backoff:
    """Pauses in seconds, each twice as long as the one before."""

    def __init__(self, initial: float, maximum: float) -> None:
        self._initial, self._maximum = initial, maximum
        self._next = initial

    def pause(self, ran: float = 0.0) -> float:
        """Return the next pause, after an attempt that has run for ``ran`` seconds."""
        if ran > HEALTHY_AFTER:
            self._next = self._initial
        pause, self._next = self._next, min(2 * self._next, self._maximum)
        return pause

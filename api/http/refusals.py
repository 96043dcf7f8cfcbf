"""Requests that a connection refuses before the service sees them, in the log and as a metric."""

import logging
import time

from prometheus_client import CollectorRegistry

from api.metrics import catalogue

logger = logging.getLogger(__name__)

_INTERVAL = 60.0
"""Minimum interval in seconds between two warnings for the same reason."""

_GUESSES = (
    ((b"\x16\x03",), "TLS, but this port serves plain HTTP. Use http://, or a proxy that terminates TLS."),
    ((b"PRI * HTTP/2",), "HTTP/2, which is not supported. Set the client or the proxy to HTTP/1.1."),
    (
        (b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n"),
        "the PROXY protocol, which is not supported. Turn it off in the load balancer.",
    ),
)
"""What the first bytes of other protocols are, and what to do."""


def guess(data: bytes) -> str | None:
    """Return which other protocol ``data`` probably is, and what to do; None if unknown."""
    return next((meaning for prefixes, meaning in _GUESSES if data.startswith(prefixes)), None)


class Refusals:
    """Counts refused requests, and logs a warning for each reason once a minute."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._count = catalogue.CONNECTION_REFUSALS.counter(registry)
        self._warned: dict[str, float] = {}

    def add(self, address: str, status: int, reason: str) -> None:
        """Report a request of ``address`` that is refused with ``status``. ``reason`` is one of a few, for the log."""
        self._count.labels(status).inc()
        now = time.monotonic()
        if now - self._warned.get(reason, float("-inf")) >= _INTERVAL:
            self._warned[reason] = now
            logger.warning("a request of %s is refused (%d): %s", address, status, reason)

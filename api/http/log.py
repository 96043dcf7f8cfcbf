"""The request log: one line per finished request, with its id, model, key, outcome, tokens and times.

Fields that do not apply are omitted.
"""

import logging
import time

from api.http.exchange import HttpExchange
from api.http.routes import METRICS_PATH, OPEN_PATHS, PAGE_FOLDER
from shared.runtime.logs import Fields

logger = logging.getLogger("api.request_log")  # this name is documented in docs/logs.md

UNLOGGED = OPEN_PATHS | {METRICS_PATH}
"""Paths without log lines: probes and scrapes are too frequent."""


def is_logged(path: str) -> bool:
    """Return whether exchanges on ``path`` are logged and traced. Probes, scrapes and the web page's files are not."""
    return path not in UNLOGGED and not path.startswith(PAGE_FOLDER)


def write(exchange: HttpExchange) -> None:
    """Log the line of a finished exchange at level INFO."""
    if not is_logged(exchange.path) or not logger.isEnabledFor(logging.INFO):
        return
    now = time.monotonic()
    fields: dict[str, object] = {
        "id": exchange.id,
        "method": exchange.method,
        "path": exchange.path,
        "status": exchange.status,
        "outcome": outcome_of(exchange),
        "trace_id": exchange.span.trace_id or None,
    }
    if exchange.key is not None:
        fields |= {"key": exchange.key.id, "key_name": exchange.key.name or None}
    if exchange.details is not None:
        fields |= exchange.details.log_fields()
    fields["total_ms"] = milliseconds(now - exchange.started_at)
    logger.info("request %s", Fields(fields))


def outcome_of(exchange: HttpExchange) -> str:
    """Return the problem kind, the finish reason, or ``aborted`` when the client has disconnected before the end."""
    if exchange.problem is not None:
        return exchange.problem
    if exchange.details is not None and exchange.details.outcome:
        return exchange.details.outcome
    return "aborted" if exchange.status is None else "ok"


def milliseconds(seconds: float) -> int:
    """Return ``seconds`` as the log has them."""
    return round(seconds * 1000)

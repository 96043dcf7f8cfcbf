"""The request log: one line per finished request, with its id, model, key, outcome, tokens and times.

Fields that do not apply are omitted.
"""

import logging
import time

from api.http.access import METRICS_PATH, OPEN_PATHS
from api.http.exchange import HttpExchange
from api.page.static_files import FOLDER
from shared.runtime.logs import Fields

logger = logging.getLogger("api.request_log")  # this name is documented in docs/logs.md

UNLOGGED = OPEN_PATHS | {METRICS_PATH}
"""Paths without log lines: probes and scrapes are too frequent."""


def is_logged(path: str) -> bool:
    """Return whether exchanges on ``path`` are logged and traced. Probes, scrapes and the web page's files are not."""
    return path not in UNLOGGED and not path.startswith(FOLDER)


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
    chat = exchange.chat
    if chat is not None and chat.accepted:
        usage = chat.recorder
        fields |= {
            "model": chat.request.model,
            "stream": chat.request.stream,
            "job": chat.stream.jobs[0].partition(":")[0],
            "workers": ",".join(chat.stream.workers) or None,
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "completion_tokens": usage.completion_tokens,
        }
        if chat.stream.move_causes:
            fields["migrations"] = len(chat.stream.move_causes)
        for name, seconds in (
            ("queue", usage.queue_wait),
            ("prompt", usage.prompt_seconds),
            ("prefill", usage.prefill_seconds),
        ):
            if seconds is not None:
                fields[f"{name}_ms"] = _milliseconds(seconds)
        if usage.first_token is not None:
            fields["first_token_ms"] = _milliseconds(usage.first_token - exchange.started_at)
    fields["total_ms"] = _milliseconds(now - exchange.started_at)
    logger.info("request %s", Fields(fields))


def outcome_of(exchange: HttpExchange) -> str:
    """Return the problem kind, the finish reason, or ``aborted`` when the client has disconnected before the end."""
    if exchange.problem is not None:
        return exchange.problem
    if exchange.chat is not None and exchange.chat.accepted:
        return exchange.chat.recorder.outcome
    return "aborted" if exchange.status is None else "ok"


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)

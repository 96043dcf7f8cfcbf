"""The request log: one line per finished request, ``request id=... model=... key=... status=... outcome=...``.

The fields are ``name=value``, separated by spaces; fields that do not apply are omitted. A value with anything but
letters, digits and some punctuation is written as a JSON string, so that clients cannot forge lines.
"""

import json
import logging
import re
import time

from api.access import METRICS_PATH, OPEN_PATHS
from api.http_exchange import HttpExchange
from api.web_page import FOLDER

logger = logging.getLogger(__name__)

UNLOGGED = OPEN_PATHS | {METRICS_PATH}
"""Paths without log lines: probes and scrapes are too frequent."""

_PLAIN = re.compile(r"[A-Za-z0-9._:/+@-]{1,128}")
_MOST = 128
"""Maximum number of logged characters of a value."""


def write(exchange: HttpExchange) -> None:
    """Log the line of a finished exchange at level INFO. Files of the web page have none."""
    if exchange.path in UNLOGGED or exchange.path.startswith(FOLDER) or not logger.isEnabledFor(logging.INFO):
        return
    now = time.monotonic()
    fields: dict[str, object] = {
        "id": exchange.id,
        "method": exchange.method,
        "path": exchange.path,
        "status": exchange.status,
        "outcome": _outcome(exchange),
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
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "completion_tokens": usage.completion_tokens,
        }
        if usage.first_token is not None:
            fields["first_token_ms"] = _milliseconds(usage.first_token - exchange.began)
    fields["total_ms"] = _milliseconds(now - exchange.began)
    logger.info("request %s", " ".join(f"{name}={_text(one)}" for name, one in fields.items() if one is not None))


def _outcome(exchange: HttpExchange) -> str:
    """Return the problem kind, the finish reason, or ``aborted`` when the client has disconnected before the end."""
    if exchange.problem is not None:
        return exchange.problem
    if exchange.chat is not None and exchange.chat.accepted:
        return exchange.chat.recorder.outcome
    return "aborted" if exchange.status is None else "ok"


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text[:_MOST])

"""The request log: one line per finished request, ``request id=... model=... key=... status=... outcome=...``.

The fields are ``name=value``, separated by spaces; fields that do not apply are omitted. A value with anything but
letters, digits and some punctuation is written as a JSON string, so that clients cannot forge lines.
"""

import json
import logging
import re
import time

from quart import Request

from api.answers.usage_recorder import UsageRecorder
from api.keys import ApiKey
from shared.protocol.errors import ProblemKind
from shared.protocol.request import ChatRequest

logger = logging.getLogger(__name__)

_PLAIN = re.compile(r"[A-Za-z0-9._:/+@-]{1,128}")
_MOST = 128
"""Maximum number of logged characters of a value."""


class RequestLog:
    """Collects the fields of a request's log line; :meth:`write` logs it at the end of the exchange."""

    __slots__ = ("_began", "_chat", "_id", "_job", "_method", "_path", "_tally", "key", "problem", "status")

    def __init__(self, request_id: str, request: Request) -> None:
        self._id = request_id
        self._method = request.method
        self._path = request.path
        self._began = time.monotonic()
        self._chat: ChatRequest | None = None
        self._job = ""
        self._tally: UsageRecorder | None = None
        self.key: ApiKey | None = None
        self.status: int | None = None
        """HTTP status; None until the response has started."""
        self.problem: ProblemKind | None = None
        """Why the request was refused, if it was."""

    def accepted(self, chat: ChatRequest, jobs: list[str], tally: UsageRecorder) -> None:
        """Record that the request was accepted. ``tally`` is read when the line is written."""
        self._chat, self._tally = chat, tally
        self._job = jobs[0].partition(":")[0] if jobs else ""

    def write(self) -> None:
        """Log the line at level INFO."""
        if not logger.isEnabledFor(logging.INFO):
            return
        now = time.monotonic()
        fields: dict[str, object] = {
            "id": self._id,
            "method": self._method,
            "path": self._path,
            "status": self.status,
            "outcome": self._outcome(),
        }
        if self.key is not None:
            fields |= {"key": self.key.id, "key_name": self.key.name or None}
        if self._chat is not None:
            fields |= {"model": self._chat.model, "stream": self._chat.stream, "job": self._job}
        if self._tally is not None:
            tally = self._tally
            fields |= {
                "prompt_tokens": tally.prompt_tokens,
                "cached_tokens": tally.cached_tokens,
                "completion_tokens": tally.completion_tokens,
            }
            if tally.first_token is not None:
                fields["first_token_ms"] = _milliseconds(tally.first_token - self._began)
        fields["total_ms"] = _milliseconds(now - self._began)
        logger.info("request %s", " ".join(f"{name}={_value(one)}" for name, one in fields.items() if one is not None))

    def _outcome(self) -> str:
        if self.problem is not None:
            return self.problem
        if self._tally is not None:
            return self._tally.outcome
        return "aborted" if self.status is None else "ok"


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text[:_MOST])

"""The dialect of Anthropic's Messages API, at ``/v1/messages``."""

import math
import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec

from api.dialects.anthropic.errors import ERROR_SCHEMA, error_reply
from api.dialects.anthropic.models import render_model, render_models
from api.dialects.anthropic.parse import parse_count, parse_messages
from api.dialects.anthropic.render import MessagesResponseEncoder
from api.dialects.anthropic.schema import CountTokensRequest, MessagesRequest
from api.dialects.base.interface import Dialect, Models
from api.dialects.base.problems import ErrorReply
from api.dialects.base.routes import Body, chat_route, results_route
from api.limits import Counts, LimitName
from shared.protocol.errors import Problem, ProblemKind, refuse
from shared.protocol.registry import ModelInfo
from shared.protocol.request import ChatRequest

VERSION_HEADER = "anthropic-version"
VERSION_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
"""The form of versions. All are equivalent: streams and errors have the same form since 2023-06-01."""
DEFAULT_VERSION = "2023-06-01"
"""The version of requests that name none. The reference refuses them; many clients of other servers omit it."""
_NOT_SERVED = {
    "anthropic-user-profile-id": "User profiles are not available.",
    "anthropic-workspace-id": "Workspaces are not available.",
}
"""Refused headers, with the reasons. The SDKs send the fields ``user_profile_id`` and ``workspace_id`` in them."""
_SHOWN = 64
_PARAMETERS = (
    {
        "name": VERSION_HEADER,
        "in": "header",
        "schema": {"type": "string", "pattern": VERSION_PATTERN, "default": DEFAULT_VERSION},
    },
)
"""Those of all routes, for the OpenAPI document."""


class Anthropic(Dialect):
    """The :class:`api.dialects.base.interface.Dialect` of Anthropic."""

    roots = ("/v1/messages",)
    statuses = (400, 401, 403, 404, 413, 415, 429, 500, 504, 529)
    error_schemas: ClassVar = {"AnthropicError": ERROR_SCHEMA}

    def parse(self, body: bytes) -> ChatRequest:
        self.check_headers()
        return parse_messages(body)

    def check_headers(self) -> None:
        """Raise :class:`RequestRefused` if a header is malformed or names something that is not served."""
        version = self.asked.headers.get(VERSION_HEADER)
        if version is not None and not re.match(VERSION_PATTERN, version):
            message = f"'{version[:_SHOWN]}' is not a valid version: send a date such as {DEFAULT_VERSION}."
            raise refuse(ProblemKind.INVALID, message, param=VERSION_HEADER)
        for header, reason in _NOT_SERVED.items():
            if self.asked.headers.get(header) is not None:
                raise refuse(ProblemKind.INVALID, f"Not supported: {reason}", param=header)

    def render(
        self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str
    ) -> MessagesResponseEncoder:
        return MessagesResponseEncoder(request, response_id=response_id, request_id=self.asked.id)

    def error(self, problem: Problem) -> ErrorReply:
        return error_reply(problem, self.asked.id)

    def headers(self) -> Mapping[str, str]:
        """Return the id of the request in the reference's header, too."""
        return {"request-id": self.asked.id}

    def rate_headers(self, counts: Mapping[LimitName, Counts]) -> Mapping[str, str]:
        return rate_headers(counts, time.time())

    def model(self, model: ModelInfo) -> bytes:
        return render_model(model)

    def models(self, models: Models, body: bytes) -> bytes:
        """Encode a page of ``models`` as JSON. Raises :class:`RequestRefused` for an invalid query."""
        return render_models([*models.visible.values()], self.asked.query)


class CountTokens(Anthropic):
    """Of requests that count tokens."""

    def parse(self, body: bytes) -> ChatRequest:
        self.check_headers()
        return parse_count(body)

    def answer(self, request: ChatRequest, found: Sequence[Any]) -> bytes:
        return msgspec.json.encode({"input_tokens": found[0].count})


def rate_headers(counts: Mapping[LimitName, Counts], now: float) -> dict[str, str]:
    """Return ``anthropic-ratelimit-{requests,tokens}-{limit,remaining,reset}`` for the limits that are set.

    ``now`` is the Unix time in seconds. Resets are times in RFC 3339 format, in whole seconds, rounded up.
    """
    headers: dict[str, str] = {}
    for name, count in counts.items():
        reset = datetime.fromtimestamp(math.ceil(now + count.reset), UTC)
        headers[f"anthropic-ratelimit-{name}-limit"] = str(count.limit)
        headers[f"anthropic-ratelimit-{name}-remaining"] = str(count.remaining)
        headers[f"anthropic-ratelimit-{name}-reset"] = f"{reset:%Y-%m-%dT%H:%M:%SZ}"
    return headers


ROUTES = (
    chat_route("/v1/messages", "createMessage", Anthropic, Body(MessagesRequest), parameters=_PARAMETERS),
    results_route(
        "/v1/messages/count_tokens",
        "countTokens",
        CountTokens,
        body=Body(CountTokensRequest),
        parameters=_PARAMETERS,
        summary="Return the number of tokens of an Anthropic request's prompt.",
    ),
)

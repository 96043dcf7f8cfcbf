"""The dialect of Anthropic's Messages API, at ``/v1/messages``."""

import re
import time
from collections.abc import Mapping, Sequence

from werkzeug.datastructures import MultiDict

from api.dialects.anthropic.errors import error_reply
from api.dialects.anthropic.models import render_model, render_models
from api.dialects.anthropic.parse import parse_count, parse_messages
from api.dialects.anthropic.render import MessagesResponseEncoder
from api.dialects.base.interface import Dialect, Lookup
from api.dialects.base.problems import ErrorReply
from api.limits import Counts, LimitName
from api.limits.headers import anthropic_rate_headers
from shared.protocol.errors import Problem, ProblemKind, refuse
from shared.protocol.registry import ModelInfo
from shared.protocol.request import ChatRequest

__all__ = ["DEFAULT_VERSION", "VERSION_HEADER", "VERSION_PATTERN", "Anthropic"]

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


class Anthropic(Dialect):
    """The :class:`api.dialects.base.interface.Dialect` of Anthropic, instantiated for each HTTP exchange."""

    def __init__(self, headers: Lookup, request_id: str = "") -> None:
        """``request_id`` is the id of the HTTP exchange, which error bodies contain."""
        self._headers = headers
        self._request_id = request_id

    def parse(self, body: bytes) -> ChatRequest:
        self.check_headers()
        return parse_messages(body)

    def parse_count(self, body: bytes) -> ChatRequest:
        """Parse the body of a request that counts tokens. Raises :class:`RequestRefused` and no other exception."""
        self.check_headers()
        return parse_count(body)

    def check_headers(self) -> None:
        """Raise :class:`RequestRefused` if a header is malformed or names something that is not served."""
        version = self._headers.get(VERSION_HEADER)
        if version is not None and not re.match(VERSION_PATTERN, version):
            message = f"'{version[:_SHOWN]}' is not a valid version: send a date such as {DEFAULT_VERSION}."
            raise refuse(ProblemKind.INVALID, message, param=VERSION_HEADER)
        for header, reason in _NOT_SERVED.items():
            if self._headers.get(header) is not None:
                raise refuse(ProblemKind.INVALID, f"Not supported: {reason}", param=header)

    def render(
        self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str
    ) -> MessagesResponseEncoder:
        return MessagesResponseEncoder(request, response_id=response_id, request_id=self._request_id)

    def error(self, problem: Problem) -> ErrorReply:
        return error_reply(problem, self._request_id)

    def headers(self, request_id: str) -> Mapping[str, str]:
        """Return the id of the request in the reference's header, too."""
        return {"request-id": request_id}

    def rate_headers(self, counts: Mapping[LimitName, Counts]) -> Mapping[str, str]:
        return anthropic_rate_headers(counts, time.time())

    def model(self, model: ModelInfo) -> bytes:
        return render_model(model)

    def models(self, models: Sequence[ModelInfo], query: MultiDict[str, str]) -> bytes:
        """Encode a page of ``models`` as JSON. Raises :class:`RequestRefused` for an invalid query."""
        return render_models(models, query)

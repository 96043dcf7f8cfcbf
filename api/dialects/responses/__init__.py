"""The dialect of OpenAI's Responses API, at ``/v1/responses``."""

from typing import ClassVar

import msgspec

from api.dialects.base.interface import Dialect
from api.dialects.base.problems import ErrorReply, error_reply
from api.dialects.base.routes import Body, chat_route
from api.dialects.responses.parse import StoredConversation, ValidatedRequest, previous_not_found, validated_response
from api.dialects.responses.render import ResponsesEncoder
from api.dialects.responses.schema import ResponsesRequest
from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.request import ChatRequest

_ABOUT_INPUT = (ProblemKind.CONTEXT_LENGTH, ProblemKind.TEMPLATE)
"""Problems of a whole conversation, which is called ``input`` here."""


class Responses(Dialect):
    """The :class:`api.dialects.base.interface.Dialect` of the Responses API."""

    stores: ClassVar[bool] = True
    """Whether responses can be stored."""

    def parse(self, body: bytes) -> ChatRequest:
        """Parse a body that needs no stored items. Raises :class:`RequestRefused` and no other exception."""
        valid = self.validate(body)
        if valid.previous is not None:
            raise previous_not_found(valid.previous)
        return valid.request(StoredConversation(), store=self.stores and valid.store is not False)

    def validate(self, body: bytes) -> ValidatedRequest[ResponsesRequest]:
        """Validate a body. Raises :class:`RequestRefused` and no other exception."""
        return validated_response(body)

    def render(self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str) -> ResponsesEncoder:
        return ResponsesEncoder(request, response_id=response_id, created=created)

    def error(self, problem: Problem) -> ErrorReply:
        if problem.kind in _ABOUT_INPUT and problem.param in (None, "messages"):
            problem = msgspec.structs.replace(problem, param="input")
        return error_reply(problem)


class _BatchedResponses(Responses):
    """Of batch requests, whose results are in the result files alone."""

    stores = False


_BODY = Body(ResponsesRequest)
ROUTES = (
    chat_route("/v1/responses", "createResponse", Responses, _BODY, serves="responses", batched=_BatchedResponses),
)

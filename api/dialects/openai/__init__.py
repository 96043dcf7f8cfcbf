"""The OpenAI dialect, at ``/v1``."""

from api.dialects.base.interface import ErrorReply
from api.dialects.openai.errors import error_reply
from api.dialects.openai.models import render_model, render_models
from api.dialects.openai.parse import parse_chat
from api.dialects.openai.render import ChatResponseEncoder, ObfuscatedResponseEncoder
from shared.protocol.errors import Problem
from shared.protocol.request import ChatRequest

__all__ = ["OpenAI", "render_model", "render_models"]


class OpenAI:
    """The chat completions :class:`api.dialects.base.interface.Dialect` of OpenAI. Stateless."""

    def __init__(self, deployment: str | None = None) -> None:
        """``deployment`` is the model of all requests, whatever their bodies say."""
        self._deployment = deployment

    def parse(self, body: bytes) -> ChatRequest:
        """Parse a request body. Raises :class:`RequestRefused` and no other exception."""
        return parse_chat(body, self._deployment)

    def render(self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str) -> ChatResponseEncoder:
        """Return the encoder of the response to ``request``."""
        form = ObfuscatedResponseEncoder if request.obfuscate else ChatResponseEncoder
        return form(request, response_id=response_id, created=created, fingerprint=fingerprint)

    def error(self, problem: Problem) -> ErrorReply:
        """Encode an error that occurs before the response has started."""
        return error_reply(problem)

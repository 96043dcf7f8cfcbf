"""The OpenAI dialects, at ``/v1``."""

from api.dialects.base.interface import Dialect
from api.dialects.openai.completions_parse import parse_completion
from api.dialects.openai.completions_render import CompletionResponseEncoder
from api.dialects.openai.parse import parse_chat
from api.dialects.openai.render import ChatResponseEncoder, ObfuscatedResponseEncoder
from shared.protocol.request import ChatRequest

__all__ = ["OpenAI", "OpenAICompletions"]


class OpenAI(Dialect):
    """The chat completions :class:`api.dialects.base.interface.Dialect` of OpenAI. Stateless."""

    def __init__(self, deployment: str | None = None) -> None:
        """``deployment`` is the model of all requests, whatever their bodies say."""
        self._deployment = deployment

    def parse(self, body: bytes) -> ChatRequest:
        return parse_chat(body, self._deployment)

    def render(self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str) -> ChatResponseEncoder:
        form = ObfuscatedResponseEncoder if request.obfuscate else ChatResponseEncoder
        return form(request, response_id=response_id, created=created, fingerprint=fingerprint)


class OpenAICompletions(Dialect):
    """The plain completions :class:`api.dialects.base.interface.Dialect` of OpenAI. Stateless."""

    def __init__(self, deployment: str | None = None) -> None:
        """``deployment`` is the model of all requests, whatever their bodies say."""
        self._deployment = deployment

    def parse(self, body: bytes) -> ChatRequest:
        return parse_completion(body, self._deployment)

    def render(
        self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str
    ) -> CompletionResponseEncoder:
        return CompletionResponseEncoder(request, response_id=response_id, created=created, fingerprint=fingerprint)

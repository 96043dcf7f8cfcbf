"""The OpenAI dialects, at ``/v1``."""

from dataclasses import dataclass

from api.dialects.base.interface import Dialect
from api.dialects.openai.completions_parse import parse_completion
from api.dialects.openai.completions_render import CompletionResponseEncoder
from api.dialects.openai.parse import parse_chat
from api.dialects.openai.render import ChatResponseEncoder, ObfuscatedResponseEncoder
from shared.protocol.request import ChatRequest

__all__ = ["OpenAI", "OpenAICompletions"]


@dataclass(frozen=True)
class OpenAI(Dialect):
    """The chat completions :class:`api.dialects.base.interface.Dialect` of OpenAI. Stateless."""

    deployment: str | None = None
    """The model of all requests, whatever their bodies say."""

    def parse(self, body: bytes) -> ChatRequest:
        return parse_chat(body, self.deployment)

    def render(self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str) -> ChatResponseEncoder:
        form = ObfuscatedResponseEncoder if request.obfuscate else ChatResponseEncoder
        return form(request, response_id=response_id, created=created, fingerprint=fingerprint)


@dataclass(frozen=True)
class OpenAICompletions(Dialect):
    """The plain completions :class:`api.dialects.base.interface.Dialect` of OpenAI. Stateless."""

    encoder = CompletionResponseEncoder
    deployment: str | None = None
    """The model of all requests, whatever their bodies say."""

    def parse(self, body: bytes) -> ChatRequest:
        return parse_completion(body, self.deployment)

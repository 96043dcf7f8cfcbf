"""The OpenAI dialect, at ``/v1``."""

from api.dialects.base.interface import Dialect
from api.dialects.openai.parse import parse_chat
from api.dialects.openai.render import ChatResponseEncoder, ObfuscatedResponseEncoder
from shared.protocol.request import ChatRequest

__all__ = ["OpenAI"]


class OpenAI(Dialect):
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

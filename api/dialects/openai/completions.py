"""The dialect of OpenAI's plain completions, at ``/v1/completions``."""

from api.dialects.base.interface import Dialect
from api.dialects.openai.completions_parse import parse_completion
from api.dialects.openai.completions_render import CompletionResponseEncoder
from shared.protocol.request import ChatRequest


class OpenAICompletions(Dialect):
    """The plain completions :class:`api.dialects.base.interface.Dialect` of OpenAI. Stateless."""

    def __init__(self, deployment: str | None = None) -> None:
        """``deployment`` is the model of all requests, whatever their bodies say."""
        self._deployment = deployment

    def parse(self, body: bytes) -> ChatRequest:
        """Parse a request body. Raises :class:`RequestRefused` and no other exception."""
        return parse_completion(body, self._deployment)

    def render(
        self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str
    ) -> CompletionResponseEncoder:
        """Return the encoder of the response to ``request``."""
        return CompletionResponseEncoder(request, response_id=response_id, created=created, fingerprint=fingerprint)

"""The dialect of OpenVINO Model Server, at ``/v3``."""

from api.dialects.base.interface import Dialect
from api.dialects.ovms.parse import parse_chat, parse_completion
from api.dialects.ovms.render import ModelServerCompletionResponseEncoder, ModelServerResponseEncoder
from shared.protocol.request import ChatRequest

__all__ = ["ModelServer", "ModelServerCompletions"]


class ModelServer(Dialect):
    """The chat completions :class:`api.dialects.base.interface.Dialect` of OpenVINO Model Server. Stateless."""

    def parse(self, body: bytes) -> ChatRequest:
        return parse_chat(body)

    def render(
        self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str
    ) -> ModelServerResponseEncoder:
        return ModelServerResponseEncoder(request, response_id=response_id, created=created, fingerprint=fingerprint)


class ModelServerCompletions(Dialect):
    """The plain completions :class:`api.dialects.base.interface.Dialect` of OpenVINO Model Server. Stateless."""

    def parse(self, body: bytes) -> ChatRequest:
        return parse_completion(body)

    def render(
        self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str
    ) -> ModelServerCompletionResponseEncoder:
        return ModelServerCompletionResponseEncoder(
            request, response_id=response_id, created=created, fingerprint=fingerprint
        )

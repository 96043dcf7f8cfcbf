"""The dialect of OpenVINO Model Server, at ``/v3``.

Responses have OpenAI's form without ``system_fingerprint`` and usage details. The reference has no ``id``. It is
included because OpenAI's clients require one.
"""

from api.dialects.base.interface import Dialect
from api.dialects.openai.completions_render import CompletionResponseEncoder
from api.dialects.openai.render import ChatResponseEncoder
from api.dialects.ovms.parse import parse_chat, parse_completion
from shared.protocol.request import ChatRequest

__all__ = ["ModelServer", "ModelServerCompletions"]


class ModelServerResponseEncoder(ChatResponseEncoder):
    _fingerprinted = _detailed = False

    def opening(self, choice: int, prompt_tokens: int = 0, cached_tokens: int = 0) -> bytes:
        super().opening(choice)
        return self._chunk(choice, {"role": "assistant", "content": None})


class ModelServerCompletionResponseEncoder(CompletionResponseEncoder):
    _fingerprinted = _detailed = False


class ModelServer(Dialect):
    """The chat completions :class:`api.dialects.base.interface.Dialect` of OpenVINO Model Server. Stateless."""

    encoder = ModelServerResponseEncoder

    def parse(self, body: bytes) -> ChatRequest:
        return parse_chat(body)


class ModelServerCompletions(Dialect):
    """The plain completions :class:`api.dialects.base.interface.Dialect` of OpenVINO Model Server. Stateless."""

    encoder = ModelServerCompletionResponseEncoder

    def parse(self, body: bytes) -> ChatRequest:
        return parse_completion(body)

"""Response encoders of the ``/v3`` dialect: OpenAI's form without ``system_fingerprint`` and usage details.

The reference has no ``id``. It is included because OpenAI's clients require one.
"""

from api.dialects.base.interface import Usage
from api.dialects.openai.completions_render import CompletionResponseEncoder
from api.dialects.openai.render import ChatResponseEncoder, plain_usage
from shared.protocol.request import ChatRequest


class ModelServerResponseEncoder(ChatResponseEncoder):
    """An :class:`api.dialects.base.interface.ResponseEncoder` for one chat request."""

    _annotated = False

    def _identify(self, request: ChatRequest, *, answer_id: str, created: int, fingerprint: str) -> dict[str, object]:
        return {"id": f"chatcmpl-{answer_id}", "created": created, "model": request.model}

    def opening(self, choice: int, prompt_tokens: int = 0, cached_tokens: int = 0) -> bytes:
        """Encode the first chunk: the role, and null for content."""
        super().opening(choice)
        return self._chunk(choice, {"role": "assistant", "content": None})

    def _usage_object(self, usage: Usage) -> dict[str, object]:
        return plain_usage(usage)


class ModelServerCompletionResponseEncoder(CompletionResponseEncoder):
    """Encodes the response to one plain completion request."""

    def _identify(self, request: ChatRequest, *, answer_id: str, created: int, fingerprint: str) -> dict[str, object]:
        return {"id": f"cmpl-{answer_id}", "object": "text_completion", "created": created, "model": request.model}

    def _usage_object(self, usage: Usage) -> dict[str, object]:
        return plain_usage(usage)

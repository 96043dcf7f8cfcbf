"""Answers in OpenVINO Model Server's form: OpenAI's without ``system_fingerprint`` and details of the usage.

The reference has no ``id``. It is here because OpenAI's clients require one.
"""

from api.dialects.interface import Usage
from api.dialects.openai.completions_render import CompletionResponseEncoder
from api.dialects.openai.render import ChatResponseEncoder, plain_usage
from shared.protocol.request import ChatRequest


class ModelServerResponseEncoder(ChatResponseEncoder):
    """The answer to one chat request. See :class:`api.dialects.interface.ResponseEncoder` for the order of calls."""

    _annotated = False

    def _identify(self, request: ChatRequest, *, answer_id: str, created: int, fingerprint: str) -> dict[str, object]:
        return {"id": f"chatcmpl-{answer_id}", "created": created, "model": request.model}

    def opening(self, choice: int) -> bytes:
        """The chunk that tells that the first token has been generated: the role, and null for content."""
        super().opening(choice)
        return self._chunk(choice, {"role": "assistant", "content": None})

    def _usage_object(self, usage: Usage) -> dict[str, object]:
        return plain_usage(usage)


class ModelServerCompletionResponseEncoder(CompletionResponseEncoder):
    """The answer to one plain completion."""

    def _identify(self, request: ChatRequest, *, answer_id: str, created: int, fingerprint: str) -> dict[str, object]:
        return {"id": f"cmpl-{answer_id}", "object": "text_completion", "created": created, "model": request.model}

    def _usage_object(self, usage: Usage) -> dict[str, object]:
        return plain_usage(usage)

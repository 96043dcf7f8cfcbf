"""Answers in Azure's form, which is OpenAI's without details of the usage."""

import msgspec

from api.dialects.azure.errors import error_object
from api.dialects.interface import Usage
from api.dialects.openai.render import ChatResponseEncoder, plain_usage
from shared.protocol.errors import Problem
from shared.protocol.request import ChatRequest


class AzureResponseEncoder(ChatResponseEncoder):
    """The answer to one chat request. See :class:`api.dialects.interface.ResponseEncoder` for the order of calls."""

    _annotated = False

    def _identify(self, request: ChatRequest, *, answer_id: str, created: int, fingerprint: str) -> dict[str, object]:
        return {"id": answer_id, "created": created, "model": request.model, "system_fingerprint": fingerprint}

    def failure(self, problem: Problem) -> bytes:
        """An error event, a comment, and the terminator.

        Azure's SDK passes over events that it does not know, so that a broken answer would look like a whole one. It
        raises on comments, naming their text, while all other readers pass over those.
        """
        told = msgspec.json.encode({"error": error_object(problem, {})})
        words = " ".join(problem.message.split())
        return b"data: " + told + b"\n\n: error: " + words.encode() + b"\n\n" + self.done

    def _usage_object(self, usage: Usage) -> dict[str, object]:
        return plain_usage(usage)

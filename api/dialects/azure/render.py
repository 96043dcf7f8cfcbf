"""Response encoder of the Azure dialect: OpenAI's form without usage details."""

import msgspec

from api.dialects.azure.errors import error_object
from api.dialects.base.interface import Usage
from api.dialects.openai.render import ChatResponseEncoder, plain_usage
from shared.protocol.errors import Problem
from shared.protocol.request import ChatRequest


class AzureResponseEncoder(ChatResponseEncoder):
    """An :class:`api.dialects.base.interface.ResponseEncoder` for one chat request."""

    _annotated = False

    def _identify(self, request: ChatRequest, *, answer_id: str, created: int, fingerprint: str) -> dict[str, object]:
        return {"id": answer_id, "created": created, "model": request.model, "system_fingerprint": fingerprint}

    def failure(self, problem: Problem) -> bytes:
        """Encode an error event, a comment and the terminator.

        Azure's SDK ignores unknown events, so a failed response would look complete. It raises an error with the text
        of any comment, while other clients ignore comments.
        """
        error = msgspec.json.encode({"error": error_object(problem, {})})
        words = " ".join(problem.message.split())
        return b"data: " + error + b"\n\n: error: " + words.encode() + b"\n\n" + self.done

    def _usage_object(self, usage: Usage) -> dict[str, object]:
        return plain_usage(usage)

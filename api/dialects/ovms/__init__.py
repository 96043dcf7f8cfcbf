"""The dialect of OpenVINO Model Server, spoken under ``/v3``."""

from api.dialects.interface import ErrorReply
from api.dialects.openai.errors import error_reply
from api.dialects.ovms.parse import parse_chat, parse_completion
from api.dialects.ovms.render import ModelServerCompletionResponseEncoder, ModelServerResponseEncoder
from shared.protocol.errors import Problem
from shared.protocol.request import ChatRequest

__all__ = ["ModelServer", "ModelServerCompletions"]


class ModelServer:
    """The model server's chat completions, an :class:`api.dialects.interface.Dialect`. One instance serves all."""

    def parse(self, body: bytes) -> ChatRequest:
        """Translate a request body. Raises :class:`RequestRefused`, and nothing else."""
        return parse_chat(body)

    def render(
        self, request: ChatRequest, *, answer_id: str, created: int, fingerprint: str
    ) -> ModelServerResponseEncoder:
        """Begin the answer to ``request``."""
        return ModelServerResponseEncoder(request, answer_id=answer_id, created=created, fingerprint=fingerprint)

    def error(self, problem: Problem) -> ErrorReply:
        """Translate a failure into OpenAI's form: the model server's reference describes none of its own."""
        return error_reply(problem)


class ModelServerCompletions:
    """The model server's plain completions, an :class:`api.dialects.interface.Dialect`. One instance serves all."""

    def parse(self, body: bytes) -> ChatRequest:
        """Translate a request body. Raises :class:`RequestRefused`, and nothing else."""
        return parse_completion(body)

    def render(
        self, request: ChatRequest, *, answer_id: str, created: int, fingerprint: str
    ) -> ModelServerCompletionResponseEncoder:
        """Begin the answer to ``request``."""
        return ModelServerCompletionResponseEncoder(
            request, answer_id=answer_id, created=created, fingerprint=fingerprint
        )

    def error(self, problem: Problem) -> ErrorReply:
        """Translate a failure as for chats."""
        return error_reply(problem)

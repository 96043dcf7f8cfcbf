"""OpenAI's plain completions, spoken at ``/v1/completions``."""

from api.dialects.interface import ErrorReply
from api.dialects.openai.completions_parse import parse_completion
from api.dialects.openai.completions_render import CompletionResponseEncoder
from api.dialects.openai.errors import error_reply
from shared.protocol.errors import Problem
from shared.protocol.request import ChatRequest


class OpenAICompletions:
    """An :class:`api.dialects.interface.Dialect`. One instance serves all requests."""

    def parse(self, body: bytes) -> ChatRequest:
        """Translate a request body. Raises :class:`RequestRefused`, and nothing else."""
        return parse_completion(body)

    def render(
        self, request: ChatRequest, *, answer_id: str, created: int, fingerprint: str
    ) -> CompletionResponseEncoder:
        """Begin the answer to ``request``."""
        return CompletionResponseEncoder(request, answer_id=answer_id, created=created, fingerprint=fingerprint)

    def error(self, problem: Problem) -> ErrorReply:
        """Translate a failure that happens before the answer has begun."""
        return error_reply(problem)

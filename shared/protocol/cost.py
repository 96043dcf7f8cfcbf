"""What a request will cost in tokens, guessed before anything has looked at it closely.

Rate limits and fair queueing need a figure at admission; both are corrected at the end.
"""

from shared.protocol.request import ChatRequest

BYTES_PER_TOKEN = 4
"""About what the usual tokenizers make of English text."""

TOKENS_PER_MESSAGE = 4
"""What a chat template adds to a message."""

UNBOUNDED_ANSWER = 256
"""Tokens counted for an answer without a limit of its own: a usual length for chats."""

LARGEST = 2**20
"""Most tokens counted for one prompt or answer: longer than any context, however many were asked for."""


def prompt_cost(request: ChatRequest) -> int:
    """Estimate the tokens of all prompts of ``request``, tools included."""
    size = sum(_size(message.content) + _size(message.reasoning) for message in request.messages)
    size += sum(_size(call.arguments) for message in request.messages for call in message.tool_calls)
    size += sum(_size(tool.description) + _size(tool.parameters) for tool in request.tools)
    size += sum(_size(prompt) for prompt in request.prompts if isinstance(prompt, str))
    ids = sum(len(prompt) for prompt in request.prompts if not isinstance(prompt, str))
    return max(1, min(LARGEST, size // BYTES_PER_TOKEN + ids + TOKENS_PER_MESSAGE * len(request.messages)))


def answer_cost(request: ChatRequest) -> int:
    """Estimate the tokens of one generation for ``request``."""
    wanted = request.sampling.max_tokens
    return min(LARGEST, UNBOUNDED_ANSWER if wanted is None else wanted) * request.sampling.beams


def _size(text: str | None) -> int:
    if text is None:
        return 0
    return len(text) if text.isascii() else len(text.encode())

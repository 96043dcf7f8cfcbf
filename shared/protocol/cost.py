"""Estimates of a request's cost in tokens, before its prompt is tokenised.

Rate limits and fair queueing need an estimate at admission; both are corrected when the request ends.
"""

from shared.protocol.request import ChatRequest, Generate, Rerank

BYTES_PER_TOKEN = 4
"""Typical for common tokenizers and English text."""

TOKENS_PER_MESSAGE = 4
"""Tokens that a chat template adds per message."""

TOKENS_PER_IMAGE = 256
"""A picture of 450 by 450 pixels for Qwen2-VL, or one of any size for Gemma 3."""

UNBOUNDED_RESPONSE = 256
"""Tokens estimated for a choice without ``max_tokens``: a typical length in chats."""

LARGEST = 2**20
"""Maximum estimate for one prompt or choice; longer than any context."""


def prompt_cost(request: ChatRequest) -> int:
    """Estimate the tokens of all prompts of ``request``, tools included. A document is read with its query."""
    size = sum(_size(message.content) + _size(message.reasoning) for message in request.messages)
    size += sum(_size(call.arguments) for message in request.messages for call in message.tool_calls)
    size += sum(_size(tool.description) + _size(tool.parameters) for tool in request.tools)
    size += sum(_size(prompt) for prompt in request.prompts if isinstance(prompt, str))
    if isinstance(request.work, Rerank):
        queries = request.work.queries
        size += sum(map(_size, queries)) * (len(request.prompts) if len(queries) == 1 else 1)
    ids = sum(len(prompt) for prompt in request.prompts if not isinstance(prompt, str))
    ids += TOKENS_PER_IMAGE * sum(len(message.images) for message in request.messages)
    return max(1, min(LARGEST, size // BYTES_PER_TOKEN + ids + TOKENS_PER_MESSAGE * len(request.messages)))


def response_cost(request: ChatRequest) -> int:
    """Estimate the tokens of one generation for ``request``, none if it asks for other work."""
    if not isinstance(request.work, Generate):
        return 0
    wanted = request.sampling.max_tokens
    return min(LARGEST, UNBOUNDED_RESPONSE if wanted is None else wanted) * request.sampling.beams


def _size(text: str | None) -> int:
    if text is None:
        return 0
    return len(text) if text.isascii() else len(text.encode())

"""Digests of a prompt's prefixes, by which prefix routing finds a worker that has the prefix cached."""

from collections.abc import Iterator
from hashlib import blake2b

from shared.protocol.request import ChatRequest

LENGTHS = tuple(sorted(step * 2**power for step in (2, 3) for power in range(9, 15)))
"""Lengths of the prefixes in characters, growing by at most one half. They start at 1,024, where caching begins to
save noticeable time, and end at 49,152, longer than most contexts."""

_DIGEST_BYTES = 8

_IMAGE_DIGESTS = 16
"""Repetitions of an image's digest: caching an image is worth as much as caching 1,024 characters."""


def prefix_digests(request: ChatRequest) -> str:
    """Return the concatenated digests of the prompt's prefixes, longest first; empty for a short prompt.

    Each digest has 16 hexadecimal digits. The text is the input of the chat template, in its usual order: tools,
    then messages. Prompts of token ids have no digests.
    """
    text = _leading_text(request)
    digests = ""
    running = blake2b(digest_size=_DIGEST_BYTES)
    begin = 0
    for end in LENGTHS:
        if end > len(text):
            break
        running.update(text[begin:end].encode())
        digests = running.hexdigest() + digests
        begin = end
    return digests


def _leading_text(request: ChatRequest) -> str:
    parts: list[str] = []
    size = 0
    for part in _parts(request):
        parts.append(part[: LENGTHS[-1]])
        size += len(part)
        if size >= LENGTHS[-1]:
            break
    return "".join(parts) if size >= LENGTHS[0] else ""


def _parts(request: ChatRequest) -> Iterator[str]:
    if isinstance(request.prompt, str):
        yield request.prompt
    if request.tool_choice != "none":
        for tool in request.tools:
            yield from (tool.name, tool.description or "", tool.parameters or "")
    for message in request.messages:
        yield from (message.role, message.reasoning or "", message.content)
        for image in message.images:
            yield image.digest * _IMAGE_DIGESTS
        for call in message.tool_calls:
            yield from (call.name, call.arguments)

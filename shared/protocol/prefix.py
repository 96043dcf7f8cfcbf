"""The beginnings of a prompt, as digests by which requests that begin alike find a worker that has computed one."""

from collections.abc import Iterator
from hashlib import blake2b

from shared.protocol.request import ChatRequest

LENGTHS = tuple(sorted(step * 2**power for step in (2, 3) for power in range(9, 15)))
"""Lengths of the beginnings in characters, each at most half as long again as the one before: from 1,024, where the
KV cache begins to spare what one would notice, to 49,152, more than most contexts hold."""

_DIGEST_BYTES = 8


def prefix_digests(request: ChatRequest) -> str:
    """Return the digests of the beginnings of a request's prompt, the longest first; empty for a short prompt.

    Each is 16 hexadecimal digits long. The text is what a chat template is given, in the order in which templates write
    it: tools, then messages. A prompt of token ids has none.
    """
    text = _beginning(request)
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


def _beginning(request: ChatRequest) -> str:
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
        for call in message.tool_calls:
            yield from (call.name, call.arguments)

"""Size limit for the schemas and grammars of a request."""

from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import ChatRequest


def check_size(request: ChatRequest, max_bytes: int) -> None:
    """Raise :class:`RequestRefused` if a schema or grammar is larger than ``max_bytes`` bytes of UTF-8."""
    texts = [(request.constraint.param, request.constraint.value)] if request.constraint else []
    texts += [
        (f"tools[{index}].function.parameters", tool.parameters)
        for index, tool in enumerate(request.tools)
        if tool.parameters is not None
    ]
    for param, text in texts:
        size = len(text.encode())
        if size > max_bytes:
            raise refuse(
                ProblemKind.INVALID,
                f"Invalid '{param}': its schema or grammar has {size} bytes; this worker's maximum is {max_bytes}.",
                param=param,
            )

"""Size limit for the schemas and grammars of a request."""

from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import ChatRequest


def check_size(request: ChatRequest, most_bytes: int) -> None:
    """Raise :class:`RequestRefused` if a schema or grammar is larger than ``most_bytes`` bytes of UTF-8."""
    texts = [(request.constraint.param, request.constraint.value)] if request.constraint else []
    texts += [
        (f"tools[{index}].function.parameters", tool.parameters)
        for index, tool in enumerate(request.tools)
        if tool.parameters is not None
    ]
    for param, text in texts:
        size = len(text.encode())
        if size > most_bytes:
            raise refuse(
                ProblemKind.INVALID,
                f"Invalid '{param}': its schema or grammar has {size} bytes, and {most_bytes} is the most that this "
                "worker takes.",
                param=param,
            )

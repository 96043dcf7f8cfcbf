"""Log descriptions of poison requests: enough to identify one, without the client's texts."""

import msgspec

from shared.protocol.cost import prompt_cost
from shared.protocol.request import ChatRequest, Job


def summary(job: Job) -> str:
    """Describe ``job`` in one line by its sizes and settings, without prompts, schemas, stop strings or names."""
    request = job.request
    parts = [
        f"model {request.model}",
        f"key {job.tenant or 'none'}",
        f"{len(request.messages)} messages" if request.messages else "a plain prompt",
        f"{_characters(request)} characters",
        f"about {prompt_cost(request)} tokens",
        f"{len(request.tools)} tools",
        f"n {request.n}",
        "streamed" if request.stream else "not streamed",
        f"sampling {_sampling(request)}",
    ]
    if request.constraint is not None:
        parts.append(f"constrained by a {request.constraint.kind} of {len(request.constraint.value)} characters")
    return ", ".join(parts)


def full_request(job: Job) -> str:
    """Return the complete request of ``job`` as JSON in one line."""
    return msgspec.json.encode(job.request).decode()


def _characters(request: ChatRequest) -> int:
    texts = [message.content for message in request.messages]
    texts += [prompt for prompt in request.prompts if isinstance(prompt, str)]
    return sum(len(text) for text in texts)


def _sampling(request: ChatRequest) -> str:
    """Return the sampling fields that the client set as JSON, stop strings replaced by their number."""
    given = msgspec.to_builtins(request.sampling)
    if "stop" in given:
        given["stop"] = len(given["stop"])
    return msgspec.json.encode(given).decode()

"""Answers to look for fields in: every request that an interface takes is answered, whole and streamed."""

import json
from collections.abc import Iterator

from api.dialects.base.interface import Call, Choice, ResponseEncoder, TokenLogprob, Usage
from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.protocol.events import PromptLogprobs
from shared.protocol.request import ChatRequest
from tests.compatibility.paths import inside
from tests.compatibility.rows import Interface

_TOKENS = (TokenLogprob(b"Hi", -0.5), TokenLogprob(b"!", -1.5))
_USAGE = Usage(prompt_tokens=9, completion_tokens=5, cached_tokens=3, reasoning_tokens=2)


def sent(interface: Interface) -> dict[str, list[object]]:
    """Each path of the interface's answers and errors, with the values that were there."""
    found: dict[str, list[object]] = {}
    for document in _documents(interface):
        for path, value in inside(document):
            found.setdefault(path, []).append(value)
    return found


def _documents(interface: Interface) -> Iterator[object]:
    for row in interface.requests:
        dialect = interface.dialect({**interface.query, **row.query}, row.headers)
        try:
            request = dialect.parse(json.dumps({**interface.plain, **row.body}).encode())
        except RequestRefused as refused:
            yield json.loads(dialect.error(refused.problem).body)
            continue
        rendering = dialect.render(request, response_id="a", created=1, fingerprint="fp")
        yield json.loads(rendering.completion([_choice(request)], _USAGE))
        yield from _chunks(request, rendering)
    dialect = interface.dialect(interface.query, {})
    for kind in ProblemKind:
        yield json.loads(dialect.error(Problem(kind=kind, message="m", param="messages")).body)


def _choice(request: ChatRequest) -> Choice:
    return Choice(
        index=_last(request),
        text="Hi!",
        reason="tool_calls" if request.tools else "stop",
        reasoning="Hm.",
        calls=(Call(id="c", name=request.tools[0].name, arguments='{"a":1}'),) if request.tools else (),
        logprobs=_TOKENS if request.sampling.logprobs else None,
        prompt=PromptLogprobs((1, b"H"), (), ()) if request.sampling.prompt_scoring else None,
        tokens=(1, 2),
        prompt_tokens=(1,),
    )


def _last(request: ChatRequest) -> int:
    """The index of the last choice: above 0 somewhere, so that it does not seem to be always 0."""
    return request.n - 1


def _chunks(request: ChatRequest, rendering: ResponseEncoder) -> Iterator[object]:
    logprobs = _TOKENS if request.sampling.logprobs else ()
    choice = _last(request)
    events = rendering.opening(choice) + rendering.reasoning(choice, "Hm.") + rendering.content(choice, "Hi!", logprobs)
    if request.tools:
        events += rendering.call(choice, 1, "c", request.tools[0].name) + rendering.arguments(choice, 1, "{}")
    events += rendering.closing(choice, "stop") + rendering.usage(_USAGE)
    for event in events.split(b"\n\n" if b"data: " in events else b"\n"):
        if event:
            yield json.loads(event.rpartition(b"data: ")[2])

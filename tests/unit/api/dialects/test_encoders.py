"""What responses become in each dialect, whole and streamed: the cases of ``encoded/*.jsonl``, a file for each dialect.

Each field that the SDK's types have is there, and none is unknown.

In each line but the first, ``send`` are the fields that the plain body gets. ``calls`` are calls of the encoder, each a
method and its arguments, and ``stream`` are the events that these make; ``choices`` are those of a response, and
``whole`` is its body. ``unchecked`` says why the types of the dialect's SDK do not know them. Tokens are written in
Latin-1: ``"\u00c3"`` is the byte C3.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ollama
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from api.dialects.base.interface import EVENT_STREAM, Call, Choice, Dialect, ResponseEncoder, TokenLogprob, Usage
from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.events import PromptLogprobs, RankedToken, TopToken
from tests.support.dialects import DIALECTS
from tests.support.sdk_types import CompletionChunk, anthropic_events, anthropic_types, checked, complete
from tests.unit.api.dialects.recorded import Case, cases, made

FOLDER = Path(__file__).parent / "encoded"
USAGE = Usage(prompt_tokens=9, completion_tokens=5, cached_tokens=3, reasoning_tokens=2)
SCORED = PromptLogprobs(
    first=(0, b"<s>"),
    rest=(RankedToken(5, b"On", -0.5, 1), RankedToken(7, b"c\xc3", -2.5, 3), RankedToken(8, b"\xa9", -0.125, 1)),
    top=(
        (RankedToken(5, b"On", -0.5, 1), RankedToken(6, b"In", -1.0, 2)),
        (RankedToken(5, b"On", -0.375, 1), RankedToken(6, b"In", -1.5, 2)),
        (RankedToken(8, b"\xa9", -0.125, 1), RankedToken(6, b"In", -1.25, 2)),
    ),
)
"""The log probabilities of the prompt "Onc\u00e9", which begins with a token that the client has not sent."""

_response_event = TypeAdapter[ResponseStreamEvent](ResponseStreamEvent)


def response_event(text: str) -> object:
    """Check an event of the Responses API by the SDK's types."""
    return complete(type(_response_event.validate_json(text)), text)


def message_event(text: str) -> object:
    """Check an event of a message by the SDK's types, which leave out two."""
    if (kind := json.loads(text))["type"] in ("ping", "error"):
        return kind
    checked(type(anthropic_events(beta=True).validate_python(kind)), text)
    return complete(type(anthropic_events().validate_python(kind)), text)


def message(text: str) -> object:
    checked(anthropic_types().beta.BetaMessage, text)
    return complete(anthropic_types().Message, text)


def of(kind: type[BaseModel]) -> Callable[[str], object]:
    return lambda text: complete(kind, text)


def of_ollama(kind: str) -> Callable[[str], object]:
    """Check a line by a type of Ollama's SDK."""
    return lambda text: getattr(ollama, kind).model_validate_json(text)


CHECKS: Mapping[str, tuple[Callable[[str], object], Callable[[str], object]]] = {
    "anthropic": (message, message_event),
    "azure": (json.loads, json.loads),
    "chat": (of(ChatCompletion), of(ChatCompletionChunk)),
    "completions": (of(Completion), of(CompletionChunk)),
    "ovms_chat": (ChatCompletion.model_validate_json, ChatCompletionChunk.model_validate_json),
    "ovms_completions": (json.loads, json.loads),
    "ovms_responses": (json.loads, json.loads),
    "responses": (of(Response), response_event),
    "ollama_chat": (of_ollama("ChatResponse"), of_ollama("ChatResponse")),
    "ollama_generate": (of_ollama("GenerateResponse"), of_ollama("GenerateResponse")),
}
"""The checks of whole responses and of events by the types of the dialect's SDK."""


def logprobs(written: Sequence[Sequence[Any]]) -> tuple[TokenLogprob, ...]:
    """Tokens, each written as piece, log probability, and perhaps the most likely ones."""

    def raw(piece: str) -> bytes:
        return piece.encode("latin-1")

    return tuple(
        TokenLogprob(raw(piece), value, *(tuple(TopToken(raw(one), of) for one, of in tops) for tops in more))
        for piece, value, *more in written
    )


def called(encoder: ResponseEncoder, method: str, *arguments: Any) -> bytes:
    """The bytes of one call."""
    match method:
        case "done":
            return encoder.done
        case "usage":
            return encoder.usage(USAGE)
        case "failure":
            return encoder.failure(Problem(kind=ProblemKind(arguments[0]), message=arguments[1]))
        case "prompt":
            return encoder.prompt(arguments[0], SCORED)
        case "content" | "reasoning" if len(arguments) == 3:
            arguments = (*arguments[:2], logprobs(arguments[2]))
    encoded: bytes = getattr(encoder, method)(*arguments)
    return encoded


def choice_of(index: int, written: Case) -> Choice:
    fields: Case = {"index": index, "text": "", "reason": "stop"} | written
    fields["calls"] = tuple(Call(**call) for call in written.get("calls", ()))
    if "logprobs" in written:
        fields["logprobs"] = logprobs(written["logprobs"])
    if "prompt" in written:
        fields["prompt"] = SCORED
    return Choice(**fields)


def lines(stream: bytes, check: Callable[[str], object]) -> Iterator[Any]:
    """The objects of a stream with one on each line, checked."""
    for text in stream.decode().splitlines():
        if "error" not in (line := json.loads(text)):
            check(text)
        yield line


def events(stream: bytes, check: Callable[[str], object]) -> Iterator[Any]:
    """The events of a stream, checked; those with names are named as their types. The last may be ``[DONE]``."""
    *blocks, rest = stream.decode().split("\n\n")
    assert rest == ""
    for block in blocks:
        *name, data = block.split("\n")
        text = data.removeprefix("data: ")
        assert text != data
        if text == "[DONE]":
            yield text
            continue
        event = json.loads(text)
        assert name in ([], [f"event: {event.get('type')}"])
        if "error" not in event:
            check(text)
        yield event


def timeless(event: Any) -> Any:
    """The event with ``*`` as its time, if it has a text there."""
    return (
        event | {"created_at": "*"} if isinstance(event, dict) and isinstance(event.get("created_at"), str) else event
    )


@pytest.mark.parametrize(("name", "plain", "case"), [case for name in DIALECTS for case in cases(FOLDER, name)])
def test_a_response_is_encoded(name: str, plain: Case, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.dialects.responses.render.time.time", lambda: 8.5)
    monkeypatch.setattr("api.dialects.ollama.render.time.monotonic", lambda: 1.5)
    dialect: Dialect = made(name, case)
    request = dialect.parse(json.dumps(plain["plain"] | case["send"]).encode())
    whole, event = (json.loads, json.loads) if "unchecked" in case else CHECKS[name]
    if "calls" in case:
        encoder = dialect.render(request, response_id="0" * 32, created=7, fingerprint="fp")
        stream = b"".join(called(encoder, *call) for call in case["calls"])
        read = events if dialect.stream_type == EVENT_STREAM else lines
        assert [timeless(one) for one in read(stream, event)] == case["stream"]
    if "choices" in case:
        encoder = dialect.render(request, response_id="0" * 32, created=7, fingerprint="fp")
        choices = [choice_of(index, one) for index, one in enumerate(case["choices"])]
        body = encoder.completion(choices, USAGE).decode()
        whole(body)
        assert timeless(json.loads(body)) == case["whole"]

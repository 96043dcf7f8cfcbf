"""All that Anthropic's dialect sends, against the types of its SDK: each field is there, none is unknown."""

import json
from collections.abc import Sequence

import pytest
from pydantic import BaseModel
from werkzeug.datastructures import MultiDict

from api.dialects.anthropic.models import render_model, render_models
from api.dialects.base.interface import Call, Choice, ResponseEncoder, Usage
from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.registry import IMAGE, TEXT, ModelInfo
from shared.protocol.request import ChatRequest
from tests.support.dialects import DIALECTS
from tests.support.sdk_types import anthropic_events, anthropic_types, checked, complete

DIALECT = DIALECTS["anthropic"].make()
USAGE = Usage(prompt_tokens=9, completion_tokens=5, cached_tokens=3, reasoning_tokens=2)
CALLS = (Call(id="c1", name="f", arguments='{"a":1}'), Call(id="c2", name="g", arguments='{"a":'))
CHOICES = [
    Choice(index=0, text="", reason="stop"),
    Choice(index=0, text="Hi", reason="length"),
    Choice(index=0, text="Hi", reason="stop", stop="END"),
    Choice(index=0, text="", reasoning="Hm.", reason="length"),
    Choice(index=0, text="Hi", reasoning="Hm.", reason="tool_calls", calls=CALLS),
    Choice(index=0, text="", reason="tool_calls", calls=CALLS[:1]),
]
ONLY_IN_THE_DOCUMENTATION = {ProblemKind.TOO_LARGE}
"""Kinds with an error type that the SDK's types lack."""


def encoder() -> ResponseEncoder:
    request = ChatRequest(model="m")
    return DIALECT.render(request, response_id="a", created=1, fingerprint="fp")


def check_stream(stream: bytes) -> Sequence[str]:
    """Check each event, and return the types of all."""
    types = []
    for event in stream.split(b"\n\n")[:-1]:
        name, data = event.split(b"\ndata: ")
        document = json.loads(data)
        types.append(document["type"])
        assert name == f"event: {document['type']}".encode()
        if document["type"] == "error":
            complete(anthropic_types().shared.ErrorResponse, data)
        elif document["type"] == "ping":
            assert document == {"type": "ping"}
        else:
            kind = type(anthropic_events().validate_python(document))
            assert issubclass(kind, BaseModel)
            complete(kind, data)
            beta = type(anthropic_events(beta=True).validate_python(document))
            assert issubclass(beta, BaseModel)
            checked(beta, data)
    return types


@pytest.mark.parametrize("choice", CHOICES)
def test_a_message_has_every_field(choice: Choice) -> None:
    message = encoder().completion([choice], USAGE)
    complete(anthropic_types().Message, message)
    checked(anthropic_types().beta.BetaMessage, message)


@pytest.mark.parametrize("choice", CHOICES)
def test_each_event_has_every_field(choice: Choice) -> None:
    by = encoder()
    types = check_stream(by.opening(0, 9) + by.whole(choice) + by.usage(USAGE) + by.done)
    assert (*types[:2], *types[-2:]) == ("message_start", "ping", "message_delta", "message_stop")


def test_a_message_is_accepted_as_a_part_of_the_next_request() -> None:
    message = json.loads(encoder().completion([CHOICES[4]], USAGE))
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": ""} for call in CALLS]
    said = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": message["content"]},
        {"role": "user", "content": results},
    ]
    parsed = DIALECT.parse(json.dumps({"model": "m", "max_tokens": 5, "messages": said}).encode())
    assert [call.id for call in parsed.messages[1].tool_calls] == ["c1", "c2"]


@pytest.mark.parametrize("kind", sorted(set(ProblemKind) - ONLY_IN_THE_DOCUMENTATION))
def test_each_error_has_every_field(kind: ProblemKind) -> None:
    problem = Problem(kind=kind, message="why")
    complete(anthropic_types().shared.ErrorResponse, DIALECT.error(problem).body)
    assert check_stream(encoder().failure(problem)) == ["error"]


@pytest.mark.parametrize("modalities", [(TEXT,), (TEXT, IMAGE)])
def test_models_have_every_field(modalities: tuple[str, ...]) -> None:
    model = ModelInfo(name="a", created=1_700_000_000, context_length=8192, modalities=modalities)
    shown = complete(anthropic_types().ModelInfo, render_model(model))
    assert shown.capabilities is not None
    assert shown.capabilities.image_input.supported is (IMAGE in modalities)
    page = json.loads(render_models([model], MultiDict()))
    assert page.keys() == {"data", "first_id", "last_id", "has_more"}
    assert page["data"] == [json.loads(render_model(model))]

"""All that Anthropic's dialect sends, against the types of its SDK: each field is there, none is unknown."""

import json

import pytest
from werkzeug.datastructures import MultiDict

from api.dialects.anthropic.models import render_model, render_models
from api.dialects.base.interface import Call, Choice, ResponseEncoder, Usage
from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.registry import IMAGE, TEXT, ModelInfo
from shared.protocol.request import ChatRequest
from tests.support.dialects import DIALECTS
from tests.support.sdk_types import anthropic_types, complete

DIALECT = DIALECTS["anthropic"].make()
USAGE = Usage(prompt_tokens=9, completion_tokens=5, cached_tokens=3, reasoning_tokens=2)
CALLS = (Call(id="c1", name="f", arguments='{"a":1}'), Call(id="c2", name="g", arguments='{"a":'))
ANSWER = Choice(index=0, text="Hi", reasoning="Hm.", reason="tool_calls", calls=CALLS)
ONLY_IN_THE_DOCUMENTATION = {ProblemKind.TOO_LARGE}
"""Kinds with an error type that the SDK's types lack."""


def encoder() -> ResponseEncoder:
    request = ChatRequest(model="m")
    return DIALECT.render(request, response_id="a", created=1, fingerprint="fp")


def test_a_message_is_accepted_as_a_part_of_the_next_request() -> None:
    message = json.loads(encoder().completion([ANSWER], USAGE))
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": ""} for call in CALLS]
    said = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": message["content"]},
        {"role": "user", "content": results},
    ]
    parsed = DIALECT.parse(json.dumps({"model": "m", "max_tokens": 5, "messages": said}).encode())
    assert [call.id for call in parsed.messages[1].tool_calls] == ["c1", "c2"]


@pytest.mark.parametrize("kind", ProblemKind)
def test_each_error_has_every_field(kind: ProblemKind) -> None:
    problem = Problem(kind=kind, message="why", retry_after=0.5)
    reply = DIALECT.error(problem)
    name, data = encoder().failure(problem).split(b"\ndata: ")
    assert name == b"event: error"
    for document in (reply.body, data):
        assert json.loads(document)["error"]["message"].endswith("why")
        if kind not in ONLY_IN_THE_DOCUMENTATION:
            complete(anthropic_types().shared.ErrorResponse, document)
    assert reply.status >= 400
    assert reply.headers["retry-after"] == "1"


@pytest.mark.parametrize("modalities", [(TEXT,), (TEXT, IMAGE)])
def test_models_have_every_field(modalities: tuple[str, ...]) -> None:
    model = ModelInfo(name="a", created=1_700_000_000, context_length=8192, modalities=modalities)
    shown = complete(anthropic_types().ModelInfo, render_model(model))
    assert shown.capabilities is not None
    assert shown.capabilities.image_input.supported is (IMAGE in modalities)
    page = json.loads(render_models([model], MultiDict()))
    assert page.keys() == {"data", "first_id", "last_id", "has_more"}
    assert page["data"] == [json.loads(render_model(model))]

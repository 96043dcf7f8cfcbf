"""All that the Responses dialect sends, against the types of OpenAI's SDK: each field is there, none is unknown."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from openai.types.responses import (
    Response,
    ResponseErrorEvent,
    ResponseItemList,
    ResponseStreamEvent,
)
from openai.types.responses.input_token_count_response import InputTokenCountResponse
from openai.types.responses.response_error import ResponseError
from pydantic import BaseModel, TypeAdapter
from werkzeug.datastructures import MultiDict

from api.dialects.base.interface import Call, Choice, Usage
from api.dialects.responses import Responses
from api.dialects.responses.parse import render_input_tokens
from api.dialects.responses.render import ResponsesEncoder
from api.responses.forms import render_cancelled, render_input_items, render_response
from api.stored.record import StoredResponse
from shared.protocol.errors import Problem, ProblemKind
from tests.support.sdk_types import complete

ID = "0123456789abcdef0123456789abcdef"
USAGE = Usage(prompt_tokens=9, completion_tokens=5, cached_tokens=3, reasoning_tokens=2)
CALLS = (Call(id="c1", name="f", arguments='{"a":1}'), Call(id="c2", name="g", arguments=""))
CHOICE = Choice(index=0, text="Hi", reasoning="Hm.", reason="tool_calls", calls=CALLS)
TOOL: dict[str, Any] = {"type": "function", "name": "f"}
_event = TypeAdapter[ResponseStreamEvent](ResponseStreamEvent)


def encoder(**fields: Any) -> ResponsesEncoder:
    dialect = Responses()
    request = dialect.parse(json.dumps({"model": "m", "input": "Hello"} | fields).encode())
    return dialect.render(request, response_id=ID, created=7, fingerprint="fp")


def check_stream(stream: bytes, first: int = 0) -> Sequence[str]:
    """Check each event, and return the types of all."""
    types = []
    for number, event in enumerate(stream.split(b"\n\n")[:-1], first):
        name, data = event.split(b"\ndata: ")
        document = json.loads(data)
        kind = type(_event.validate_python(document))
        assert issubclass(kind, BaseModel)
        complete(kind, data)
        assert (name, document["sequence_number"]) == (f"event: {document['type']}".encode(), number)
        types.append(document["type"])
    return types


def test_items_that_are_cut_off_have_every_field() -> None:
    by = encoder()
    stream = by.opening(0) + by.reasoning(0, "Hm.") + by.content(0, "a") + by.call(0, 0, "c", "f")
    check_stream(stream + by.arguments(0, 0, "{") + by.failure(Problem(kind=ProblemKind.LOST, message="why")))
    assert [item.type for item in complete(Response, by.document).output][-1] == "function_call"


@pytest.mark.parametrize("kind", list(ProblemKind))
def test_failures_and_errors_have_every_field(kind: ProblemKind) -> None:
    problem = Problem(kind=kind, message="why")
    by = encoder()
    assert check_stream(by.opening(0) + by.content(0, "a") + by.failure(problem))[-1] == "response.failed"
    complete(ResponseError, json.dumps(json.loads(by.document)["error"]))
    assert check_stream(encoder().error(problem)) == ["error"]
    event = encoder().error(problem).split(b"data: ")[1]
    complete(ResponseErrorEvent, event)
    inner = json.loads(event)["error"]
    assert (inner.keys(), inner["message"]) == ({"message", "type", "param", "code"}, "why")
    assert json.loads(Responses().error(problem).body)["error"].keys() == {"message", "type", "param", "code"}


def stored(document: bytes = b"", **fields: Any) -> StoredResponse:
    body = {"model": "m", "input": "Hello", "background": True} | fields
    request = Responses().parse(json.dumps(body).encode())
    items = body["input"] if isinstance(body["input"], list) else [{"role": "user", "content": body["input"]}]
    return StoredResponse(
        id=f"resp_{ID}",
        model="m",
        document=document,
        input=json.dumps(items).encode(),
        jobs=() if document else ("j",),
        request=request,
        created=7,
    )


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"text": {"format": {"type": "json_object"}}, "input": "as JSON"},
        {"tools": [TOOL, {"type": "web_search"}]},
        {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [TOOL]}},
    ],
)
def test_background_responses_have_every_field(fields: dict[str, Any], started: bool) -> None:
    complete(Response, render_response(msgspec.structs.replace(stored(**fields), started=started)))


def test_a_cancelled_response_has_every_field() -> None:
    document = render_cancelled(stored())
    assert complete(Response, document).status == "cancelled"
    by = encoder(background=True)
    types = check_stream(by.queued() + by.opening(0) + by.content(0, "a") + by.ending(document))
    assert types[-1] == "response.incomplete"


def test_a_count_of_input_tokens_has_every_field() -> None:
    complete(InputTokenCountResponse, render_input_tokens(5))


def test_input_items_have_every_field() -> None:
    output = json.loads(encoder().completion([CHOICE], USAGE))["output"]
    items = [
        {"role": "user", "content": "Hello"},
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]},
        {"role": "assistant", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]},
        {"role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
        *output,
        {"type": "function_call_output", "call_id": output[2]["call_id"], "output": "1"},
        {
            "type": "function_call_output",
            "call_id": output[3]["call_id"],
            "output": [{"type": "input_text", "text": ""}],
        },
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "custom_tool_call", "call_id": "c9", "name": "patch", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "c9", "output": "done"},
    ]
    page = complete(ResponseItemList, render_input_items(stored(input=items), MultiDict({"limit": "100"})))
    assert len(page.data) == len(items)


def test_a_summary_that_is_cut_off_is_marked() -> None:
    by = encoder(reasoning={"summary": "auto"})
    stream = by.opening(0) + by.reasoning(0, "Hm.") + by.closing(0, "length")
    (done,) = (event for event in stream.split(b"\n\n") if b"event: response.reasoning_summary_part.done" in event)
    assert json.loads(done.split(b"data: ")[1])["status"] == "incomplete"

"""Azure's dialect: addressing, extra parameters, what bodies become, errors by status, and answers."""

import json
from collections.abc import Collection, Mapping
from typing import Any

import pytest
from azure.ai.inference._model_base import SdkJSONEncoder
from azure.ai.inference.models import (
    AssistantMessage,
    ChatCompletionsNamedToolChoice,
    ChatCompletionsNamedToolChoiceFunction,
    ChatCompletionsToolCall,
    ChatCompletionsToolDefinition,
    DeveloperMessage,
    FunctionCall,
    FunctionDefinition,
    StreamingChatCompletions,
    SystemMessage,
    TextContentItem,
    ToolMessage,
    UserMessage,
)

from api.dialects import ROUTES, unrouted
from api.dialects.azure import Azure
from api.dialects.azure.parse import PASSED, SERVED
from api.dialects.base.interface import Asked, Models
from api.dialects.openai import OpenAI
from api.dialects.openai.extended import ExtendedChatRequest
from api.dialects.ovms import ModelServer
from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.protocol.request import Constraint, Tool, ToolCall
from tests.support.dialects import Serving
from tests.support.jobs import request_of

USER = {"role": "user", "content": "Hello"}
VERSION = {"api-version": "2024-05-01-preview"}


def azure(
    headers: Mapping[str, str] = {}, query: Mapping[str, str] = VERSION, serving: Collection[str] = ("m",)
) -> Azure:
    return Azure(Asked(query=query, headers=headers, fleet=Serving(*serving)))


def body(**fields: Any) -> bytes:
    return json.dumps({"messages": [USER]} | fields).encode()


def error_of(dialect: Azure, raw: bytes) -> tuple[int, dict[str, Any], str]:
    """Status, body and code of a refusal."""
    with pytest.raises(RequestRefused) as refusal:
        dialect.parse(raw)
    reply = dialect.error(refusal.value.problem)
    document = json.loads(reply.body)
    assert document["status"] == reply.status
    return reply.status, document, reply.headers["x-ms-error-code"]


def test_paths_choose_the_dialect() -> None:
    kinds = {route.path: route.dialect for route in ROUTES}
    paths = ("/v1/chat/completions", "/v3/models", "/chat/completions", "/models/info", "/info")
    assert [kinds[path] for path in paths] == [OpenAI, ModelServer, Azure, Azure, Azure]
    assert [*map(unrouted, ("/chat/else", "/infos", "/else", "/"))] == [Azure, OpenAI, OpenAI, OpenAI]


def test_every_field_is_known_to_the_schema() -> None:
    assert set(ExtendedChatRequest.model_fields) >= SERVED | PASSED
    assert not SERVED & PASSED


def test_what_the_sdk_sends() -> None:
    call = ChatCompletionsToolCall(id="c1", function=FunctionCall(name="f", arguments="{}"))
    sent = {
        "messages": [
            SystemMessage("Be kind."),
            DeveloperMessage("Be brief."),
            UserMessage([TextContentItem(text="Call f.")]),
            AssistantMessage(tool_calls=[call]),
            ToolMessage(tool_call_id="c1"),
        ],
        "tools": [
            ChatCompletionsToolDefinition(
                function=FunctionDefinition(name="f", description="d", parameters={"type": "object"})
            )
        ],
        "tool_choice": ChatCompletionsNamedToolChoice(function=ChatCompletionsNamedToolChoiceFunction(name="f")),
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "integer"}}},
    }
    request = azure().parse(json.dumps(sent, cls=SdkJSONEncoder, exclude_readonly=True).encode())
    assert [message.role for message in request.messages] == ["system", "developer", "user", "assistant", "tool"]
    assert request.messages[2].content == "Call f."
    assert request.messages[3].tool_calls == (ToolCall(id="c1", name="f", arguments="{}"),)
    assert request.messages[4].content == ""
    assert request.tools == (Tool(name="f", description="d", parameters='{"type":"object"}'),)
    assert (request.tool_choice, request.named_tool) == ("required", "f")
    assert request.constraint == Constraint(kind="json_schema", value='{"type":"integer"}')


def test_a_long_value_is_not_repeated_whole() -> None:
    _, document, _ = error_of(azure(), body(tool_choice="x" * 10_000))
    assert len(document["detail"]["value"]) < 300


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"\xff", b'{"messages": NaN}'])
def test_a_body_that_is_no_json_object_is_a_bad_request(raw: bytes) -> None:
    status, document, _ = error_of(azure(), raw)
    assert status == 400
    assert sorted(document) == ["code", "error", "message", "param", "status"]


@pytest.mark.parametrize("kind", list(ProblemKind))
def test_every_kind_of_problem_has_a_form_and_a_code(kind: ProblemKind) -> None:
    reply = azure().error(Problem(kind=kind, message="why", retry_after=0.5))
    document = json.loads(reply.body)
    assert document["message"].endswith("why")
    assert document["status"] == reply.status >= 400
    assert reply.headers["x-ms-error-code"]
    assert reply.headers["retry-after"] == "1"


NO_MODELS = Models({}, frozenset(), KeyError)  # type: ignore[arg-type]


def test_the_model_is_described() -> None:
    assert json.loads(azure().models(NO_MODELS, b"")) == {
        "model_name": "m",
        "model_type": "chat-completion",
        "model_provider_name": "vinoqueue",
    }
    unknown = azure({"azureml-model-deployment": "none"})
    with pytest.raises(RequestRefused) as refusal:
        unknown.models(NO_MODELS, b"")
    assert unknown.error(refusal.value.problem).status == 404


def updates(stream: bytes) -> list[Any]:
    """What the SDK makes of a stream."""

    class Response:
        def iter_bytes(self) -> Any:
            return iter([stream])

        def close(self) -> None:
            pass

    return list(StreamingChatCompletions(Response()))  # type: ignore[arg-type]


def test_the_sdk_raises_when_a_stream_breaks() -> None:
    answer = azure().render(request_of(stream=True), response_id="0f", created=1, fingerprint="fp")
    stream = answer.opening(0) + answer.failure(Problem(kind=ProblemKind.LOST, message="The answer\nis lost."))
    with pytest.raises(ValueError, match=r"error: The answer is lost\."):
        updates(stream)
    events = [json.loads(line[6:]) for line in stream.split(b"\n\n") if line.startswith(b"data: {")]
    assert events[-1]["error"]["status"] == 500
    assert stream.endswith(b"\n\ndata: [DONE]\n\n")


def test_a_running_request_keeps_only_what_a_later_error_quotes() -> None:
    dialect = azure()
    request = dialect.parse(body(messages=[{"role": "user", "content": "x" * 10_000}]))
    late = Problem(kind=ProblemKind.CACHE_EXHAUSTED, message="No room.")
    before = dialect.error(late)
    dialect.render(request, response_id="a", created=1, fingerprint="")
    assert dialect.error(late) == before
    assert len(json.dumps(dialect._body)) < 400

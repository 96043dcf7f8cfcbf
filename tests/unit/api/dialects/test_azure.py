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

from api.dialects import dialect_of
from api.dialects.azure import Azure
from api.dialects.azure.parse import PASSED, SERVED
from api.dialects.base.interface import Call, Choice, Usage
from api.dialects.openai import OpenAI
from api.dialects.openai.extended import ExtendedChatRequest
from api.dialects.openai.parse import DEFAULTS
from api.dialects.ovms import ModelServer
from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.protocol.request import ChatRequest, Constraint, Image, Message, Sampling, Tool, ToolCall

USER = {"role": "user", "content": "Hello"}
VERSION = {"api-version": "2024-05-01-preview"}
FUNCTION = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
PASS = {"extra-parameters": "pass-through"}


def azure(
    headers: Mapping[str, str] = {}, query: Mapping[str, str] = VERSION, serving: Collection[str] = ("m",)
) -> Azure:
    return Azure(query, headers, lambda: serving)


def body(**fields: Any) -> bytes:
    return json.dumps({"messages": [USER]} | fields).encode()


def parse(headers: Mapping[str, str] = {}, **fields: Any) -> ChatRequest:
    return azure(headers).parse(body(**fields))


def error_of(dialect: Azure, raw: bytes) -> tuple[int, dict[str, Any], str]:
    """Status, body and code of a refusal."""
    with pytest.raises(RequestRefused) as refusal:
        dialect.parse(raw)
    reply = dialect.error(refusal.value.problem)
    document = json.loads(reply.body)
    assert document["status"] == reply.status
    return reply.status, document, reply.headers["x-ms-error-code"]


def test_paths_choose_the_dialect() -> None:
    kinds = {
        path: type(dialect_of(path, {}, {}, tuple))
        for path in ("/v1/chat/completions", "/v3/models", "/chat/completions", "/models/info", "/info", "/else", "/")
    }
    assert list(kinds.values()) == [OpenAI, ModelServer, Azure, Azure, Azure, OpenAI, OpenAI]


def test_a_plain_request() -> None:
    assert parse() == ChatRequest(model="m", messages=(Message(role="user", content="Hello"),), defaults=DEFAULTS)


def test_every_field_of_the_reference() -> None:
    request = parse(
        model="m",
        frequency_penalty=0.5,
        max_tokens=9,
        presence_penalty=-0.5,
        response_format={"type": "json_object"},
        seed=42,
        stop="x",
        stream=True,
        temperature=0,
        tool_choice="auto",
        tools=[FUNCTION],
        top_p=0.9,
    )
    assert request.sampling == Sampling(
        max_tokens=9, temperature=0.0, top_p=0.9, frequency_penalty=0.5, presence_penalty=-0.5, seed=42, stop=("x",)
    )
    assert request.constraint == Constraint(kind="json_object")
    assert request.tools == (Tool(name="f", description="d", parameters='{"type":"object"}'),)
    assert (request.tool_choice, request.stream, request.include_usage) == ("auto", True, True)


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


def test_null_for_max_tokens_leaves_the_limit_to_the_context() -> None:
    assert parse(max_tokens=None).sampling.max_tokens is None


@pytest.mark.parametrize(
    ("headers", "serving", "named", "chosen"),
    [
        ({}, ("one",), None, "one"),
        ({}, ("one",), "ignored", "one"),
        ({}, ("one", "two"), "two", "two"),
        ({}, (), "gone", "gone"),
        ({"azureml-model-deployment": "two"}, ("one", "two"), "one", "two"),
        ({"azureml-model-deployment": "none"}, ("one",), "one", "none"),
    ],
)
def test_the_model_is_chosen(headers: dict[str, str], serving: tuple[str, ...], named: str | None, chosen: str) -> None:
    assert azure(headers, serving=serving).parse(body(model=named)).model == chosen


def test_without_a_word_one_of_several_models_is_not_guessed() -> None:
    status, document, _ = error_of(azure(serving=("one", "two")), body())
    assert (status, document["param"]) == (400, "model")
    assert "'one', 'two'" in document["message"]
    assert error_of(azure(serving=()), body())[0] == 503


@pytest.mark.parametrize("version", [None, "", "latest", "2024-05-01-beta", "2024-5-1", "2024-05-01-preview "])
def test_the_api_version_must_have_the_references_form(version: str | None) -> None:
    query = {} if version is None else {"api-version": version}
    status, document, code = error_of(azure(query=query), body())
    assert (status, document["param"], code) == (400, "api-version", "invalid_api_version")


@pytest.mark.parametrize("version", ["2024-05-01", "2024-04-01-preview"])
def test_versions_of_that_form_are_taken(version: str) -> None:
    assert azure(query={"api-version": version}).parse(body()).model == "m"


@pytest.mark.parametrize("word", [None, "error"])
def test_extra_parameters_are_an_error_unless_allowed(word: str | None) -> None:
    headers = {} if word is None else {"extra-parameters": word}
    status, document, code = error_of(azure(headers), body(top_k=3))
    assert (status, document["param"], code) == (400, "top_k", "invalid_request")


@pytest.mark.parametrize("word", ["drop", "ignore"])
def test_extra_parameters_can_be_dropped(word: str) -> None:
    assert parse({"extra-parameters": word}, top_k="nonsense", surprise=1) == parse()


def test_extra_parameters_can_be_passed_through() -> None:
    request = parse(PASS, top_k=3, min_p=0.1, n=2, logprobs=True, stop_token_ids=[7], min_tokens=2, user="me")
    assert request.sampling == Sampling(top_k=3, min_p=0.1, logprobs=True, stop_token_ids=(7,), min_tokens=2)
    logits = parse(PASS, logprobs=True, top_logprobs=4, logit_bias={"7": 1}).sampling
    assert (logits.top_logprobs, logits.logit_bias) == (4, ((7, 1.0),))
    assert (request.n, request.user) == (2, "me")


@pytest.mark.parametrize("field", ["store", "surprise"])
def test_what_the_model_does_not_know_is_not_passed_through(field: str) -> None:
    status, document, _ = error_of(azure(PASS), body(**{field: 1}))
    assert (status, document["param"]) == (400, field)


def test_a_passed_parameter_with_a_wrong_value_is_unprocessable() -> None:
    status, document, code = error_of(azure(PASS), body(top_k=-2))
    assert (status, code) == (422, "integer_below_min_value")
    assert document["detail"] == {"loc": ["body", "top_k"], "value": "-2"}


def test_an_unknown_word_for_extra_parameters_is_refused() -> None:
    status, document, _ = error_of(azure({"extra-parameters": "maybe"}), body())
    assert (status, document["param"]) == (400, "extra-parameters")
    assert "'pass-through'" in document["message"]


@pytest.mark.parametrize(
    ("fields", "loc", "value"),
    [
        ({"temperature": 9}, ["temperature"], "9"),
        ({"temperature": "hot"}, ["temperature"], "hot"),
        ({"model": 5}, ["model"], "5"),
        ({"messages": []}, ["messages"], "[]"),
        ({"messages": [{"role": "king", "content": "x"}]}, ["messages", "0", "role"], "king"),
        ({"messages": [{"role": "user"}]}, ["messages", "0", "content"], None),
        ({"response_format": {"type": "xml"}}, ["response_format", "type"], "xml"),
        ({"tool_choice": "auto"}, ["tool_choice"], "auto"),
    ],
)
def test_values_that_the_model_can_not_take_are_unprocessable(
    fields: dict[str, Any], loc: list[str], value: str | None
) -> None:
    status, document, code = error_of(azure(), body(**fields))
    assert (status, document["error"], document["code"]) == (422, "Unprocessable Content", code)
    assert document["detail"] == {"loc": ["body", *loc], "value": value}
    assert sorted(document) == ["code", "detail", "error", "message", "status"]


def test_a_long_value_is_not_repeated_whole() -> None:
    _, document, _ = error_of(azure(), body(tool_choice="x" * 10_000))
    assert len(document["detail"]["value"]) < 300


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
        {"type": "audio_url", "audio_url": {"url": "http://host/a.wav"}},
    ],
)
def test_other_modalities_are_not_found(part: dict[str, Any]) -> None:
    status, document, code = error_of(azure(), body(messages=[{"role": "user", "content": [part]}]))
    assert (status, code) == (404, "modality_not_supported")
    assert sorted(document) == ["error", "message", "status"]


@pytest.mark.parametrize(
    ("part", "url"),
    [
        ({"type": "image_url", "image_url": {"url": "http://host/a.png", "detail": "low"}}, "http://host/a.png"),
        ({"type": "image", "content": "http://host/a.png", "detail": "low"}, "http://host/a.png"),
        ({"type": "image", "content": "AAAA", "detail": "low"}, "data:;base64,AAAA"),
    ],
)
def test_both_forms_of_image_url(part: dict[str, Any], url: str) -> None:
    (message,) = azure().parse(body(messages=[{"role": "user", "content": [part]}])).messages
    assert message.images == (Image(low=True, param="messages[0].content[0]", url=url),)


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


def test_the_model_is_described() -> None:
    assert json.loads(azure().info()) == {
        "model_name": "m",
        "model_type": "chat-completion",
        "model_provider_name": "vinoqueue",
    }
    unknown = azure({"azureml-model-deployment": "none"})
    with pytest.raises(RequestRefused) as refusal:
        unknown.info()
    assert unknown.error(refusal.value.problem).status == 404


USAGE = Usage(prompt_tokens=3, completion_tokens=2, cached_tokens=1)


def updates(stream: bytes) -> list[Any]:
    """What the SDK makes of a stream."""

    class Response:
        def iter_bytes(self) -> Any:
            return iter([stream])

        def close(self) -> None:
            pass

    return list(StreamingChatCompletions(Response()))  # type: ignore[arg-type]


def test_the_sdk_reads_a_stream() -> None:
    dialect = azure()
    answer = dialect.render(dialect.parse(body(stream=True)), response_id="0f", created=1_700_000_000, fingerprint="fp")
    stream = (
        answer.opening(0),
        answer.content(0, "Hi 🙂"),
        answer.call(0, 0, "call_1", "f"),
        answer.arguments(0, 0, "{}"),
        answer.closing(0, "tool_calls"),
        answer.usage(USAGE),
        answer.done,
    )
    first, text, call, arguments, closing, usage = updates(b"".join(stream))
    assert (first.id, first.model, first.choices[0].delta.role) == ("0f", "m", "assistant")
    assert text.choices[0].delta.content == "Hi 🙂"
    assert call.choices[0].delta.tool_calls[0].function.name == "f"
    assert arguments.choices[0].delta.tool_calls[0].function.arguments == "{}"
    assert closing.choices[0].finish_reason == "tool_calls"
    assert usage.usage == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def test_the_sdk_raises_when_a_stream_breaks() -> None:
    answer = azure().render(ChatRequest(model="m", stream=True), response_id="0f", created=1, fingerprint="fp")
    stream = answer.opening(0) + answer.failure(Problem(kind=ProblemKind.LOST, message="The answer\nis lost."))
    with pytest.raises(ValueError, match=r"error: The answer is lost\."):
        updates(stream)
    events = [json.loads(line[6:]) for line in stream.split(b"\n\n") if line.startswith(b"data: {")]
    assert events[-1]["error"]["status"] == 500
    assert stream.endswith(b"\n\ndata: [DONE]\n\n")


def test_a_whole_answer_has_the_references_form() -> None:
    answer = azure().render(ChatRequest(model="m"), response_id="0f", created=1_700_000_000, fingerprint="fp")
    choice = Choice(index=0, text="", reason="tool_calls", calls=(Call(id="c", name="f", arguments="{}"),))
    whole = json.loads(answer.completion([choice], USAGE))
    assert {"id", "object", "created", "model", "choices", "usage", "system_fingerprint"} == set(whole)
    assert whole["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    (call,) = whole["choices"][0]["message"]["tool_calls"]
    assert call == {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def test_a_running_request_keeps_only_what_a_later_error_quotes() -> None:
    dialect = azure()
    request = dialect.parse(body(messages=[{"role": "user", "content": "x" * 10_000}]))
    late = Problem(kind=ProblemKind.CACHE_EXHAUSTED, message="No room.")
    before = dialect.error(late)
    dialect.render(request, response_id="a", created=1, fingerprint="")
    assert dialect.error(late) == before
    assert len(json.dumps(dialect._body)) < 400

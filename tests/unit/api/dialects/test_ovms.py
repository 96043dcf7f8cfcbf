"""OpenVINO Model Server's dialect: what its bodies become, what it refuses, and how it answers."""

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from api.dialects.base.interface import Choice, TokenLogprob, Usage
from api.dialects.ovms import ModelServer, ModelServerCompletions
from api.dialects.ovms.fields import CHAT, UNSUPPORTED
from api.dialects.ovms.parse import DEFAULTS, ModelServerChatRequest
from api.dialects.ovms.render import ModelServerResponseEncoder
from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.protocol.request import LOCAL, ChatRequest, Constraint, Image, Message, Sampling

USER = {"role": "user", "content": "Hello"}
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
DIALECT = ModelServer()


def parse(**fields: Any) -> ChatRequest:
    return DIALECT.parse(json.dumps({"model": "m", "messages": [USER]} | fields).encode())


def problem_of(**fields: Any) -> Problem:
    with pytest.raises(RequestRefused) as refusal:
        parse(**fields)
    return refusal.value.problem


def test_a_plain_request_has_the_references_defaults() -> None:
    request = parse()
    assert request == ChatRequest(model="m", messages=(Message(role="user", content="Hello"),), defaults=DEFAULTS)
    assert (DEFAULTS.temperature, DEFAULTS.top_p, DEFAULTS.top_k) == (1.0, 1.0, 40)


@pytest.mark.parametrize(
    ("fields", "sampling"),
    [
        ({"max_tokens": 5}, {"max_tokens": 5}),
        ({"max_completion_tokens": 6}, {"max_tokens": 6}),
        ({"temperature": 0}, {"temperature": 0.0}),
        ({"top_p": 0.5}, {"top_p": 0.5}),
        ({"top_k": 7}, {"top_k": 7}),
        ({"top_k": -1}, {"top_k": 0}),
        ({"min_p": 0.1}, {"min_p": 0.1}),
        ({"repetition_penalty": 1.2}, {"repetition_penalty": 1.2}),
        ({"frequency_penalty": -2}, {"frequency_penalty": -2.0}),
        ({"presence_penalty": 2}, {"presence_penalty": 2.0}),
        ({"seed": 2**32 - 1}, {"seed": 2**32 - 1}),
        ({"stop": ["a", "b"]}, {"stop": ("a", "b")}),
        ({"ignore_eos": True}, {"ignore_eos": True}),
        ({"include_stop_str_in_output": True}, {"include_stop": True}),
        ({"stream": True}, {"include_stop": True}),
        ({"stream": True, "include_stop_str_in_output": True}, {"include_stop": True}),
        ({"logprobs": True}, {"logprobs": True}),
        ({"skip_special_tokens": False}, {"skip_special_tokens": False}),
        ({"best_of": 4, "n": 2}, {"beams": 4}),
        ({"best_of": 4, "length_penalty": -0.5}, {"beams": 4, "length_penalty": -0.5}),
        ({"num_assistant_tokens": 5, "max_ngram_size": 3}, {"num_assistant_tokens": 5, "max_ngram_size": 3}),
        ({"assistant_confidence_threshold": 0.4}, {"assistant_confidence_threshold": 0.4}),
    ],
)
def test_sampling_fields(fields: dict[str, Any], sampling: dict[str, Any]) -> None:
    assert parse(**fields).sampling == Sampling(**sampling)


def test_the_other_fields() -> None:
    request = parse(
        n=2,
        best_of=3,
        stream=True,
        stream_options={"include_usage": True},
        tools=[FUNCTION],
        tool_choice={"type": "function", "function": {"name": "f"}},
        chat_template_kwargs={"enable_thinking": False},
    )
    assert (request.n, request.best_of) == (2, 1)
    assert request.include_usage
    assert (request.tool_choice, request.named_tool) == ("required", "f")
    assert json.loads(request.template_kwargs or "") == {"enable_thinking": False}


def test_every_field_of_the_reference_is_known_to_the_schema() -> None:
    assert set(ModelServerChatRequest.model_fields) >= CHAT
    assert not CHAT & UNSUPPORTED.keys()


@pytest.mark.parametrize(
    ("form", "constraint"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, Constraint(kind="json_object")),
        (
            {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "integer"}}},
            Constraint(kind="json_schema", value='{"type":"integer"}'),
        ),
    ],
)
def test_openais_response_formats(form: dict[str, Any], constraint: Constraint | None) -> None:
    assert parse(response_format=form).constraint == constraint


@pytest.mark.parametrize(
    "form",
    [
        {"type": "const_string", "value": "Grüße"},
        {"type": "regex", "pattern": "[0-9]+"},
        {"type": "grammar", "grammar": 'root ::= "a"'},
        {"type": "triggered_tags", "triggers": ["<a>"], "tags": []},
    ],
)
def test_structural_forms_are_wrapped_in_a_structural_tag(form: dict[str, Any]) -> None:
    constraint = parse(response_format=form).constraint
    assert constraint is not None
    assert constraint.kind == "structural_tag"
    assert json.loads(constraint.value) == {"type": "structural_tag", "format": form}


def test_a_whole_structural_tag_is_taken_as_it_is() -> None:
    tag = {"type": "structural_tag", "format": {"type": "any_text"}}
    constraint = parse(response_format=tag).constraint
    assert constraint is not None
    assert json.loads(constraint.value) == tag


@pytest.mark.parametrize("field", sorted(UNSUPPORTED))
def test_what_the_reference_does_not_support_is_refused_by_name(field: str) -> None:
    problem = problem_of(**{field: 1})
    assert (problem.param, problem.code) == (field, "unsupported_parameter")
    assert UNSUPPORTED[field] in problem.message
    assert parse(**{field: None}) == parse()


@pytest.mark.parametrize("field", ["store", "service_tier", "reasoning_effort"])
def test_openais_own_fields_are_refused_by_name(field: str) -> None:
    assert problem_of(**{field: True}).param == field


def test_a_field_that_nobody_knows_is_refused_by_name() -> None:
    assert "surprise" in problem_of(surprise=1).message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"include_stop_str_in_output": False, "stream": True}, "include_stop_str_in_output"),
        ({"n": 2}, "n"),
        ({"n": 3, "best_of": 2}, "n"),
        ({"best_of": 0}, "best_of"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**32}, "seed"),
        ({"top_k": -2}, "top_k"),
        ({"top_p": 0}, "top_p"),
        ({"min_p": 1}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"frequency_penalty": 3}, "frequency_penalty"),
        ({"num_assistant_tokens": 3, "assistant_confidence_threshold": 0.5}, "assistant_confidence_threshold"),
        ({"chat_template_kwargs": {"eos_token": ""}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"max_tokens": 5, "max_completion_tokens": 5}, "max_tokens"),
        ({"stream_options": {}}, "stream_options"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": "text"}, "response_format"),
        ({"stop": ["1", "2", "3", "4", "5"]}, "stop"),
        ({"messages": []}, "messages"),
    ],
)
def test_broken_rules_are_refused_by_name(fields: dict[str, Any], param: str) -> None:
    problem = problem_of(**fields)
    assert (problem.kind, problem.param) == (ProblemKind.INVALID, param), problem
    assert DIALECT.error(problem).status == 400


def rendering(**fields: Any) -> ModelServerResponseEncoder:
    request = ChatRequest(model="m", **fields)
    return DIALECT.render(request, response_id="0f", created=1_700_000_000, fingerprint="fp")


def event(stream: bytes) -> dict[str, Any]:
    assert stream.startswith(b"data: ")
    assert stream.endswith(b"\n\n")
    value: dict[str, Any] = json.loads(stream[6:])
    return value


def test_chunks_have_the_references_form() -> None:
    answer = rendering(stream=True)
    common = {"id": "chatcmpl-0f", "created": 1_700_000_000, "model": "m", "object": "chat.completion.chunk"}
    first = event(answer.opening(0))
    assert first == common | {
        "choices": [
            {"index": 0, "delta": {"role": "assistant", "content": None}, "logprobs": None, "finish_reason": None}
        ]
    }
    assert event(answer.content(0, "Hi"))["choices"][0]["delta"] == {"content": "Hi"}
    assert event(answer.reasoning(0, "Hm"))["choices"][0]["delta"] == {"reasoning_content": "Hm"}
    assert event(answer.closing(0, "stop"))["choices"][0]["finish_reason"] == "stop"
    assert answer.usage(Usage(prompt_tokens=1, completion_tokens=2)) == b""
    assert answer.done == b"data: [DONE]\n\n"


def test_the_usage_is_three_numbers() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    answer = rendering(stream=True, include_usage=True)
    assert event(answer.opening(0))["usage"] is None
    last = event(answer.usage(Usage(prompt_tokens=3, completion_tokens=2, cached_tokens=1)))
    assert (last["choices"], last["usage"]) == ([], usage)
    whole = json.loads(
        rendering().completion(
            [Choice(index=0, text="Hi", reason="stop", logprobs=(TokenLogprob(b"Hi", -0.5),))],
            Usage(prompt_tokens=3, completion_tokens=2),
        )
    )
    assert whole["usage"] == usage
    assert "system_fingerprint" not in whole
    (token,) = whole["choices"][0]["logprobs"]["content"]
    assert (token["token"], token["logprob"], token["bytes"]) == ("Hi", -0.5, [72, 105])


def test_answers_and_chunks_are_those_of_openais_sdk() -> None:
    choices = [Choice(index=0, text="Hi", reason="stop")]
    usage = Usage(prompt_tokens=3, completion_tokens=2)
    whole = ChatCompletion.model_validate_json(rendering().completion(choices, usage))
    chunk = ChatCompletionChunk.model_validate(event(rendering(stream=True).opening(0)))
    assert whole.id == chunk.id == "chatcmpl-0f"


COMPLETIONS = ModelServerCompletions()


def parse_plain(**fields: Any) -> ChatRequest:
    return COMPLETIONS.parse(json.dumps({"model": "m", "prompt": "Once"} | fields).encode())


def test_a_plain_completion_has_the_references_defaults() -> None:
    assert parse_plain() == ChatRequest(model="m", prompts=("Once",), defaults=DEFAULTS)


@pytest.mark.parametrize(
    ("fields", "sampling"),
    [
        ({"max_tokens": 5, "top_k": -1}, {"max_tokens": 5, "top_k": 0}),
        ({"logprobs": 1}, {"logprobs": True}),
        ({"logprobs": 0}, {}),
        ({"best_of": 3, "n": 2}, {"beams": 3}),
        ({"stream": True, "best_of": 2}, {"beams": 2, "include_stop": True}),
        ({"ignore_eos": True, "min_p": 0.2}, {"ignore_eos": True, "min_p": 0.2}),
    ],
)
def test_sampling_fields_of_plain_completions(fields: dict[str, Any], sampling: dict[str, Any]) -> None:
    assert parse_plain(**fields).sampling == Sampling(**sampling)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": 2}, "logprobs"),
        ({"suffix": "end"}, "suffix"),
        ({"user": "me"}, "user"),
        ({"messages": []}, "messages"),
        ({"stop_token_ids": [1]}, "stop_token_ids"),
        ({"stream": True, "include_stop_str_in_output": False}, "include_stop_str_in_output"),
        ({"seed": 2**32}, "seed"),
    ],
)
def test_broken_rules_of_plain_completions_are_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestRefused) as refusal:
        parse_plain(**fields)
    assert refusal.value.problem.param == param


def test_a_plain_answer_has_the_references_form() -> None:
    answer = COMPLETIONS.render(parse_plain(), response_id="0f", created=1_700_000_000, fingerprint="fp")
    choice = Choice(index=0, text=" upon", reason="length", logprobs=(TokenLogprob(b" upon", -0.5),))
    whole = json.loads(answer.completion([choice], Usage(prompt_tokens=3, completion_tokens=1)))
    assert set(whole) == {"id", "object", "created", "model", "choices", "usage"}
    assert event(answer.content(0, " upon"))["id"] == whole["id"] == "cmpl-0f"
    assert whole["usage"] == {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    assert whole["choices"][0]["logprobs"]["token_logprobs"] == [-0.5]


@pytest.mark.parametrize(
    ("url", "internal"),
    [
        ("/images/zebra.jpeg", f"{LOCAL}/images/zebra.jpeg"),
        ("http://host/zebra.jpeg", "http://host/zebra.jpeg"),
        ("data:image/jpeg;base64,AAAA", "data:image/jpeg;base64,AAAA"),
    ],
)
def test_the_three_forms_of_image_url(url: str, internal: str) -> None:
    part = {"type": "image_url", "image_url": {"url": url}}
    (message,) = parse(messages=[{"role": "user", "content": [part]}]).messages
    assert message.images == (Image(param="messages[0].content[0]", url=internal),)


def test_a_client_names_no_local_file_by_url() -> None:
    part = {"type": "image_url", "image_url": {"url": f"{LOCAL}/images/zebra.jpeg"}}
    assert problem_of(messages=[{"role": "user", "content": [part]}]).param == "messages[0].content[0]"

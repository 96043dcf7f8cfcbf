"""Responses and streams of the Responses dialect."""

import json
from typing import Any

import msgspec
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from api.dialects.base.interface import Call, Choice, TokenLogprob, Usage
from api.dialects.responses import Responses
from api.dialects.responses.render import ResponsesEncoder
from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.request import ChatRequest, Sampling
from tests.support.sdk_types import check_known, checked

TOOL: dict[str, Any] = {"type": "function", "name": "f", "description": "Does it.", "parameters": {"type": "object"}}
USAGE = Usage(prompt_tokens=9, completion_tokens=5, cached_tokens=3, reasoning_tokens=2)
ID = "0123456789abcdef0123456789abcdef"
SCHEMA = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
FORMAT = {"type": "json_schema", "name": "s", "schema": SCHEMA, "strict": True}
MODELS_OWN = Sampling(temperature=0.2, top_p=0.9)
_event = TypeAdapter[ResponseStreamEvent](ResponseStreamEvent)


def parse(**fields: Any) -> ChatRequest:
    return Responses().parse(json.dumps({"model": "m", "input": "Hello"} | fields).encode())


def encoder(**fields: Any) -> ResponsesEncoder:
    return Responses().render(parse(**fields), response_id=ID, created=7, fingerprint="fp")


def events(stream: bytes) -> list[Any]:
    """Return the typed events, whose names and numbers are right."""
    found = []
    for block in stream.decode().removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        event = _event.validate_json(data.removeprefix("data: "), strict=True)
        check_known(event)
        assert name == f"event: {event.type}"
        found.append(event)
    assert [event.sequence_number for event in found] == list(range(len(found)))
    return found


def test_a_stream_of_items() -> None:
    encoding = encoder(instructions="Be brief.", tools=[TOOL], stream=True, metadata={"a": "b"})
    stream = encoding.opening(0) + encoding.reasoning(0, "H") + encoding.reasoning(0, "m.")
    stream += encoding.content(0, "Hi") + encoding.content(0, "!")
    stream += encoding.call(0, 0, "x", "f") + encoding.arguments(0, 0, '{"a"') + encoding.arguments(0, 0, ":1}")
    stream += encoding.closing(0, "tool_calls") + encoding.usage(USAGE) + encoding.done
    found = events(stream)
    assert [event.type.removeprefix("response.") for event in found] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert (found[0].response.status, found[0].response.output) == ("in_progress", [])
    response = found[-1].response
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
    assert [event.item for event in found if event.type == "response.output_item.done"] == response.output
    assert [event.output_index for event in found if event.type == "response.output_item.done"] == [0, 1, 2]
    assert (response.status, response.instructions, response.metadata) == ("completed", "Be brief.", {"a": "b"})
    assert response.output_text == "Hi!"
    usage = response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (9, 5, 14)
    assert (usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens) == (3, 2)
    # What is stored is what was sent.
    assert checked(Response, encoding.completion([], USAGE)) == response


def test_a_whole_response_equals_a_streamed_one() -> None:
    fields = {"tools": [TOOL], "max_output_tokens": 9, "tool_choice": {"type": "function", "name": "f"}}
    choice = Choice(
        index=0,
        text="Hi!",
        reason="tool_calls",
        reasoning="Hm.",
        calls=(Call(id="x", name="f", arguments="{}"),),
    )
    whole = checked(Response, encoder(**fields).completion([choice], USAGE))
    encoding = encoder(**fields)
    stream = encoding.opening(0) + encoding.reasoning(0, "Hm.") + encoding.content(0, "Hi!")
    stream += encoding.call(0, 0, "y", "f") + encoding.arguments(0, 0, "{}")
    stream += encoding.closing(0, "tool_calls") + encoding.usage(USAGE)
    assert events(stream)[-1].response.model_copy(update={"completed_at": None}) == whole.model_copy(
        update={"completed_at": None}
    )
    assert (whole.id, whole.created_at, whole.max_output_tokens) == (f"resp_{ID}", 7, 9)
    assert len({item.id for item in whole.output}) == 3


def test_a_response_cut_by_length_is_incomplete() -> None:
    encoding = encoder()
    found = events(
        encoding.opening(0) + encoding.content(0, "Hi") + encoding.closing(0, "length") + encoding.usage(USAGE)
    )
    assert found[-1].type == "response.incomplete"
    response = found[-1].response
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (response.output[0].status, response.completed_at) == ("incomplete", None)


def test_a_failed_stream_ends_with_the_failed_response() -> None:
    encoding = encoder()
    problem = Problem(kind=ProblemKind.TIMEOUT, message="Too late.")
    found = events(encoding.opening(0) + encoding.content(0, "Hi") + encoding.failure(problem))
    response = found[-1].response
    assert (found[-1].type, response.status) == ("response.failed", "failed")
    assert (response.error.code, response.error.message) == ("server_error", "Too late.")
    assert (response.output[0].content[0].text, response.output[0].status) == ("Hi", "incomplete")


def test_an_empty_answer_is_an_empty_message() -> None:
    encoding = encoder()
    found = events(encoding.opening(0) + encoding.closing(0, "stop") + encoding.usage(USAGE))
    assert [item.type for item in found[-1].response.output] == ["message"]
    assert found[-1].response.output_text == ""


def test_reasoning_is_the_summary_if_one_is_wanted() -> None:
    encoding = encoder(reasoning={"summary": "auto"})
    found = events(
        encoding.opening(0)
        + encoding.reasoning(0, "Hm.")
        + encoding.content(0, "Hi")
        + encoding.closing(0, "stop")
        + encoding.usage(USAGE)
    )
    assert [event.type.removeprefix("response.") for event in found[2:8]] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
    ]
    assert found[-1].response.output[0].summary[0].text == "Hm."


def test_log_probabilities_of_the_text() -> None:
    encoding = encoder(include=["message.output_text.logprobs"])
    token = TokenLogprob(b"Hi", -0.5)
    found = events(
        encoding.opening(0) + encoding.content(0, "Hi", [token]) + encoding.closing(0, "stop") + encoding.usage(USAGE)
    )
    (delta,) = (event for event in found if event.type == "response.output_text.delta")
    assert [(one.token, one.logprob) for one in delta.logprobs] == [("Hi", -0.5)]
    text = found[-1].response.output[0].content[0]
    assert [(one.token, one.bytes) for one in text.logprobs] == [("Hi", [72, 105])]


def test_a_response_repeats_its_request() -> None:
    sent = {
        "instructions": "Be brief.",
        "max_output_tokens": 9,
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "prompt_cache_key": "k",
        "reasoning": {"effort": "low", "summary": None},
        "safety_identifier": "s",
        "service_tier": "flex",
        "temperature": 0.5,
        "top_p": 0.5,
        "tool_choice": {"type": "function", "name": "f"},
        "top_logprobs": 2,
        "truncation": "disabled",
        "user": "u",
        "max_tool_calls": 2,
        "background": False,
    }
    document = json.loads(
        encoder(**sent, tools=[TOOL], text={"format": FORMAT}).completion(
            [Choice(index=0, text="Hi!", reason="stop", logprobs=())], USAGE
        )
    )
    assert {name: document[name] for name in sent} == sent
    assert document["tools"] == [TOOL | {"strict": False}]
    assert document["text"] == {"format": FORMAT | {"description": None}, "verbosity": "medium"}
    assert (document["object"], document["error"], document["incomplete_details"]) == ("response", None, None)


@pytest.mark.parametrize(
    ("sent", "defaults", "shown"),
    [
        ({}, Sampling(), (1.0, 1.0)),
        ({}, MODELS_OWN, (0.2, 0.9)),
        ({"temperature": 0.7}, MODELS_OWN, (0.7, 0.9)),
        ({"top_p": 0}, MODELS_OWN, (0.0, 0.0)),
    ],
)
def test_a_response_shows_the_sampling_that_was_used(
    sent: dict[str, float], defaults: Sampling, shown: tuple[float, float]
) -> None:
    request = msgspec.structs.replace(parse(**sent), defaults=defaults)
    encoding = Responses().render(request, response_id=ID, created=7, fingerprint="")
    document = json.loads(encoding.completion([Choice(index=0, text="Hi!", reason="stop")], USAGE))
    assert (document["temperature"], document["top_p"]) == shown


@pytest.mark.parametrize("reasoning", [{}, {"summary": "auto"}])
def test_encrypted_content_continues_reasoning_that_is_not_sent_back(reasoning: dict[str, str]) -> None:
    by = encoder(include=["reasoning.encrypted_content"], reasoning=reasoning)
    stream = by.opening(0) + by.reasoning(0, "Hm") + by.reasoning(0, ".") + by.content(0, "Hi")
    found = events(stream + by.closing(0, "stop") + by.usage(USAGE))
    (item,) = (event.item for event in found if event.type == "response.output_item.done" and event.output_index == 0)
    assert found[-1].response.output[0] == item
    sent = {"type": "reasoning", "summary": [], "encrypted_content": item.encrypted_content}
    assert parse(input=[sent, {"role": "user", "content": "Hello"}]).messages[0].reasoning == "Hm."
    foreign = sent | {"encrypted_content": "gAAAAABo", "summary": [{"type": "summary_text", "text": "Well."}]}
    assert parse(input=[foreign, {"role": "user", "content": "Hello"}]).messages[0].reasoning == "Well."
    assert '"include"' not in by.document.decode()

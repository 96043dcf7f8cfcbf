"""Structured output and tools on the real model: what comes back is valid, a bad grammar harms nobody else."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal

import openai
import pytest
from pydantic import BaseModel, Field, TypeAdapter

from tests.acceptance.conftest import MODEL
from tests.support.fleet import Fleet


class Person(BaseModel):
    name: str = Field(max_length=30)
    age: int = Field(ge=0, le=120)


class Shade(BaseModel):
    color: Literal["red", "green", "blue"]
    strength: float = Field(ge=0, lt=1)


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=1, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    loud: bool


class Node(BaseModel):
    value: int = Field(gt=-10, lt=10)
    next: "Node | None"


class Address(BaseModel, extra="allow"):
    zip: str = Field(pattern=r"^[0-9]{5}(-[A-Z]{2,3})?$")
    born: str = Field(json_schema_extra={"format": "date"})


PLAIN_TYPES: list[Any] = [
    Person,
    Shade,
    Cat | Dog,
    Annotated[Cat | Dog, Field(discriminator="kind")],
    Node,
    Address,
    list[Person],
    tuple[str, int],
    dict[str, int],
    Annotated[list[bool], Field(min_length=2, max_length=4)],
    Annotated[float, Field(ge=-0.25, le=17.5)],
    Annotated[int, Field(ge=95, le=1203)],
    Literal["yes", "no", 3],
    Annotated[str, Field(min_length=3, max_length=8)],
    int | None,
    Person | list[int],
]


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def schema_format(schema: Any) -> Any:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def ask(fleet: Fleet, text: str, **options: Any) -> Any:
    options = {"max_tokens": 120, "temperature": 0.7, "seed": 5, **options}
    return fleet.client().chat.completions.create(model=MODEL, messages=user(text), **options).choices[0]


def test_sixteen_schemas_at_once_all_hold(real_fleet: Fleet) -> None:
    adapters = [TypeAdapter(kind) for kind in PLAIN_TYPES]

    def one(adapter: TypeAdapter[Any]) -> Any:
        return ask(real_fleet, "Make up an example.", response_format=schema_format(adapter.json_schema()))

    def neighbour(_: int) -> Any:
        return ask(real_fleet, "Tell me about the sea.", temperature=0, max_tokens=30).message.content

    with ThreadPoolExecutor(len(adapters) + 4) as pool:
        choices = pool.map(one, adapters)
        neighbours = pool.map(neighbour, range(4))
        finished = 0
        for adapter, choice in zip(adapters, choices, strict=True):
            if choice.finish_reason == "stop":
                finished += 1
                adapter.validate_json(choice.message.content)
        assert len(set(neighbours)) == 1
    # Left to ramble in white space, about half would come to their end.
    assert finished >= 12


@pytest.mark.parametrize("stream", [False, True])
def test_a_long_minimum_length_holds(real_fleet: Fleet, stream: bool) -> None:
    schema = TypeAdapter(Annotated[str, Field(min_length=100, max_length=120)]).json_schema()
    options: dict[str, Any] = {"response_format": schema_format(schema), "temperature": 0, "max_tokens": 120}
    messages = user("What is the capital of France? One word.")
    answer: Any = real_fleet.client().chat.completions.create(model=MODEL, messages=messages, stream=stream, **options)
    if stream:
        choices = [choice for chunk in answer for choice in chunk.choices]
        text, reason = "".join(choice.delta.content or "" for choice in choices), choices[-1].finish_reason
    else:
        text, reason = answer.choices[0].message.content, answer.choices[0].finish_reason
    assert reason == "stop"
    assert 100 <= len(json.loads(text)) <= 120


def test_json_mode_gives_an_object_with_a_property(real_fleet: Fleet) -> None:
    def answered(text: str) -> Any:
        return ask(real_fleet, text, response_format={"type": "json_object"}, temperature=0)

    person = "Extract name, age, job and city from the text as JSON.\n\nText: Anna is a 42-year-old doctor from Rome."
    for asked in (person, 'Write the colour of grass as JSON: {"colour": ...}'):
        choice = answered(asked)
        assert choice.finish_reason == "stop", choice.message.content
        assert "\n" not in choice.message.content
        value = json.loads(choice.message.content)
        assert isinstance(value, dict)
        assert value
    assert answered("Answer with an empty JSON object: {}").message.content.startswith('{ "')


REFUSED: list[tuple[Any, str]] = [
    ({"type": "nonsense"}, "nonsense"),
    ({"type": "object", "properties": {"a": {"$dynamicRef": "#b"}}}, "#/properties/a/$dynamicRef"),
    ({"$ref": "#"}, "refers to itself"),
    ({"$ref": "https://example.com/schema.json"}, "$ref"),
    ({"type": "integer", "minimum": 3, "maximum": 2}, "range"),
    ({"enum": [f"{index:x>200}" for index in range(1000)]}, "bytes"),
    (
        {"properties": {f"p{n}": {"type": "string", "pattern": f"^[a-z]{{{n},200}}-{n}$"} for n in range(150)}},
        "compile",
    ),
    ({"type": "string", "pattern": "^([a-z]+ ?)*x$"}, "times as long"),
]


def test_schemas_that_cannot_be_held_are_refused_and_harm_nobody(real_fleet: Fleet) -> None:
    def quiet() -> str:
        text: str = ask(real_fleet, "Count to twenty.", temperature=0, max_tokens=16).message.content
        return text

    alone = quiet()
    with ThreadPoolExecutor(1) as pool:
        for schema, said in REFUSED:
            beside = pool.submit(quiet)
            with pytest.raises(openai.BadRequestError) as refusal:
                ask(real_fleet, "Make up an example.", response_format=schema_format(schema))
            assert refusal.value.param == "response_format"
            assert said in refusal.value.message
            assert beside.result() == alone


@pytest.mark.parametrize(
    ("form", "allowed"),
    [
        ({"type": "const_string", "value": "Ahoy, sailor"}, ["Ahoy, sailor"]),
        ({"type": "regex", "pattern": "(yes|no), (sir|madam)"}, ["yes, sir", "yes, madam", "no, sir", "no, madam"]),
        ({"type": "grammar", "grammar": 'root ::= "a" ("b" | "c")'}, ["ab", "ac"]),
        (
            {
                "type": "sequence",
                "elements": [
                    {"type": "const_string", "value": "<x>"},
                    {"type": "json_schema", "json_schema": {"enum": [1, "two"]}},
                ],
            },
            ["<x>1", '<x>"two"'],
        ),
    ],
)
def test_structural_tags_hold(real_fleet: Fleet, form: Any, allowed: list[str]) -> None:
    answer: Any = real_fleet.client("v3").chat.completions.create(
        model=MODEL, messages=user("Say something."), max_tokens=30, extra_body={"response_format": form}
    )
    assert answer.choices[0].message.content in allowed


def _said(path: str, answer: Any) -> tuple[str, list[str]]:
    """Why an answer ended, and its calls as JSON, in any dialect."""
    match path:
        case "/v1/responses":
            return answer["status"], [call["arguments"] for call in answer["output"]]
        case "/v1/messages":
            return answer["stop_reason"], [json.dumps(block["input"]) for block in answer["content"]]
        case _:
            (choice,) = answer["choices"]
            return choice["finish_reason"], [call["function"]["arguments"] for call in choice["message"]["tool_calls"]]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/v1/chat/completions", "tool_calls"),
        ("/v3/chat/completions", "tool_calls"),
        ("/v1/responses", "completed"),
        ("/v1/messages", "tool_use"),
    ],
)
@pytest.mark.parametrize("stops", [[], ["\n", "San", '"}', "location"]])
def test_a_forced_call_is_whole_and_not_repeated_until_the_context_is_full(
    real_fleet: Fleet, path: str, reason: str, stops: list[str]
) -> None:
    location = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}
    function = {"name": "get_weather", "description": "Get current weather for a location."}
    asked = user("What is the weather in San Francisco?")
    body: dict[str, Any] = {"model": MODEL, "temperature": 0, "messages": asked, "tool_choice": "required"}
    match path:
        case "/v1/responses":
            body |= {"input": body.pop("messages"), "tools": [{"type": "function", "parameters": location} | function]}
        case "/v1/messages":
            tools = [{"input_schema": location} | function]
            body |= {"tools": tools, "tool_choice": {"type": "any"}, "max_tokens": 8000, "stop_sequences": stops}
        case _:
            body |= {"tools": [{"type": "function", "function": {"parameters": location} | function}]}
    if stops and path != "/v1/messages":
        body["stop"] = stops
    status, _, answer = real_fleet.request("POST", path, json.dumps(body))
    assert status == 200, answer
    ended, calls = _said(path, json.loads(answer))
    assert ended == reason
    assert all(json.loads(call).keys() == {"location"} for call in calls)
    assert len(calls) == len(set(calls)) >= 1
    real_fleet.until(lambda: [one.get("used", 0) for one in real_fleet.workers()] == [0], "the slot to be free")

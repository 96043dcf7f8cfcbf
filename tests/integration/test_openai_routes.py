"""OpenAI's interface beyond a plain chat, by its SDK, through a simulated fleet; all that comes is strictly typed."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.resources.chat import Completions
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.completion import Completion

from tests.support.fleet import Fleet
from tests.support.fleet_fixture import fleet_fixture
from tests.support.sdk_types import CompletionChunk, checked, rechecked

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


def said(text: str) -> list[Any]:
    """A chat whose answer is ``text``."""
    return [{"role": "user", "content": f"[[say {text}]]"}]


def chat(fleet: Fleet, **fields: Any) -> ChatCompletion:
    with fleet.client() as client:
        answer: ChatCompletion = client.chat.completions.create(model="sim", **({"messages": HELLO} | fields))
    return rechecked(answer)


def chunks(fleet: Fleet, **fields: Any) -> list[ChatCompletionChunk]:
    with fleet.client() as client:
        stream = client.chat.completions.create(model="sim", stream=True, **({"messages": HELLO} | fields))
        return [rechecked(chunk) for chunk in stream]


def complete(fleet: Fleet, prompt: Any, **fields: Any) -> Completion:
    with fleet.client() as client:
        answer: Completion = client.completions.create(model="sim", prompt=prompt, **fields)
    return rechecked(answer)


def prompt_tokens_of(answer: ChatCompletion | Completion) -> int:
    assert answer.usage is not None
    return answer.usage.prompt_tokens


FUNCTION = {"name": "find_city", "description": "Find.", "parameters": {"type": "object", "properties": {}}}
TOOLS: list[Any] = [{"type": "function", "function": FUNCTION}]
CALL = '<tool_call>{"name": "find_city", "arguments": {"name": "Xanadu"}}</tool_call>'

OTHER_CALL = CALL.replace("Xanadu", "Paris")


def test_a_tool_call(session_fleet: Fleet) -> None:
    choice = chat(session_fleet, messages=said(f"Let me see. {CALL}{OTHER_CALL}"), tools=TOOLS).choices[0]
    assert (choice.message.content, choice.finish_reason) == ("Let me see.", "tool_calls")
    calls = [call for call in choice.message.tool_calls or [] if call.type == "function"]
    assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == [
        ("find_city", {"name": "Xanadu"}),
        ("find_city", {"name": "Paris"}),
    ]
    once = chat(session_fleet, messages=said(CALL + OTHER_CALL), tools=TOOLS, parallel_tool_calls=False).choices[0]
    assert len(once.message.tool_calls or []) == 1
    # The history is taken back as the SDK has it.
    history = [*HELLO, choice.message.model_dump(exclude_unset=True)]
    results = [{"role": "tool", "tool_call_id": call.id, "content": "There."} for call in calls]
    assert chat(session_fleet, messages=[*history, *results, *said("Thanks.")]).choices[0].message.content == "Thanks."


def test_a_tool_call_streams(session_fleet: Fleet) -> None:
    with (
        session_fleet.client() as client,
        client.chat.completions.stream(model="sim", messages=said(f"Let me see. {CALL}"), tools=TOOLS) as stream,
    ):
        kinds = {event.type for event in stream}
        choice = stream.get_final_completion().choices[0]
    assert {"content.delta", "tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"} <= kinds
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    assert json.loads(choice.message.tool_calls[0].function.arguments) == {"name": "Xanadu"}
    for chunk in chunks(session_fleet, messages=said(CALL), tools=TOOLS):
        assert chunk.choices[0].delta.content in (None, "")


def test_the_deprecated_form_of_a_call(session_fleet: Fleet) -> None:
    choice = chat(session_fleet, messages=said(CALL), functions=[FUNCTION]).choices[0]
    assert choice.finish_reason == "function_call"
    assert choice.message.function_call is not None
    assert json.loads(choice.message.function_call.arguments) == {"name": "Xanadu"}
    history = [*HELLO, choice.message.model_dump(exclude_unset=True), {"role": "function", "name": "f", "content": "1"}]
    assert chat(session_fleet, messages=[*history, *said("So.")]).choices[0].message.content == "So."


def test_a_plain_completion(session_fleet: Fleet) -> None:
    answer = complete(session_fleet, "Once")
    assert answer.usage is not None
    # The reference's own default.
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (16, "length")
    text = answer.choices[0].text
    assert complete(session_fleet, "Once", echo=True).choices[0].text == "Once" + text
    # The simulated engine's ids below 256 are bytes.
    assert complete(session_fleet, list(b"Once")).choices[0].text == text
    stop = text[10:14]
    assert complete(session_fleet, "Once", stop=[stop]).choices[0].text == text[: text.index(stop)]


def test_several_prompts_with_several_choices(session_fleet: Fleet) -> None:
    answer = complete(session_fleet, ["[[say one]]", "[[say two]]"], n=2)
    assert [(choice.index, choice.text) for choice in answer.choices] == [
        (0, "one"),
        (1, "one"),
        (2, "two"),
        (3, "two"),
    ]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == sum(
        prompt_tokens_of(complete(session_fleet, prompt, max_tokens=1)) for prompt in ("[[say one]]", "[[say two]]")
    )
    assert [choice.text for choice in complete(session_fleet, "[[say one]]", best_of=3, n=2).choices] == ["one", "one"]


def test_a_completion_streams(session_fleet: Fleet) -> None:
    body = {
        "model": "sim",
        "prompt": ["[[say déjà vu]]", "[[say two]]"],
        "stream": True,
        "echo": True,
        "stream_options": {"include_usage": True},
    }
    _, _, raw = session_fleet.request("POST", "/v1/completions", json.dumps(body))
    *events, done, end = raw.decode().split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    seen = [checked(CompletionChunk, event.removeprefix("data: ")) for event in events]
    texts = ["", ""]
    for chunk in seen[:-1]:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == ["[[say déjà vu]]déjà vu", "[[say two]]two"]
    assert seen[-1].choices == []
    assert seen[-1].usage is not None


store_fleet = fleet_fixture()
"""A fleet whose stored completions are this module's alone."""


@pytest.fixture
def stored(store_fleet: Fleet) -> Iterator[Completions]:
    """The SDK's methods for stored completions."""
    with store_fleet.client() as client:
        yield client.chat.completions


def test_stored_completions(store_fleet: Fleet, stored: Completions) -> None:
    first = chat(store_fleet, messages=said("one"), store=True, metadata={"topic": "sea", "mood": "calm"})
    second = chat(store_fleet, messages=said("two"), store=True, metadata={"topic": "sea"})
    third_id = chunks(store_fleet, messages=said("three"), store=True)[0].id
    unstored = chat(store_fleet, messages=said("four"))

    found = rechecked(stored.retrieve(first.id))
    assert found == first.model_copy(update={"metadata": {"topic": "sea", "mood": "calm"}})
    assert stored.retrieve(third_id).choices[0].message.content == "three"
    assert [one.id for one in stored.list()] == [first.id, second.id, third_id]
    # Pages of one are fetched one after the other.
    assert [rechecked(one).id for one in stored.list(limit=1, order="desc")] == [third_id, second.id, first.id]
    assert [one.id for one in stored.list(metadata={"topic": "sea"}, limit=1)] == [first.id, second.id]
    assert [one.id for one in stored.list(model="other")] == []
    for missing in (unstored.id, "nonsense"):
        with pytest.raises(openai.NotFoundError) as gone:
            stored.retrieve(missing)
        assert gone.value.param == "completion_id"

    assert rechecked(stored.update(second.id, metadata={"topic": "hills"})).metadata == {"topic": "hills"}
    assert [one.id for one in stored.list(metadata={"topic": "sea"})] == [first.id]
    (message,) = stored.messages.list(first.id)
    assert (message.id, message.content) == (f"{first.id}-0", "[[say one]]")

    assert rechecked(stored.delete(first.id)).deleted
    for call in (stored.retrieve, stored.delete, stored.messages.list):
        with pytest.raises(openai.NotFoundError):
            call(first.id)
    with pytest.raises(openai.BadRequestError):
        stored.list(after=unstored.id)

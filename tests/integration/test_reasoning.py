"""What a model writes to itself, in each interface, through a simulated fleet."""

import json
from typing import Any

from tests.support.fleet import Fleet
from tests.support.sdk_types import rechecked

SAID: list[Any] = [{"role": "user", "content": "[[say <think>Two and two.</think>Four it is.]]"}]
AZURE = "/chat/completions?api-version=2024-05-01-preview"


def test_it_is_separated_and_counted(session_fleet: Fleet) -> None:
    with session_fleet.client() as client:
        answer = rechecked(
            client.chat.completions.create(model="sim", messages=SAID, reasoning_effort="low", logprobs=True)
        )
    message = answer.choices[0].message
    extra = message.model_extra or {}
    assert extra["reasoning_content"] == extra["reasoning"] == "Two and two."
    assert message.content == "Four it is."
    assert answer.usage is not None
    assert answer.usage.completion_tokens_details is not None
    reasoning = answer.usage.completion_tokens_details.reasoning_tokens
    assert reasoning is not None
    assert 0 < reasoning < answer.usage.completion_tokens


def test_a_budget_that_no_worker_can_enforce_is_refused_or_named(session_fleet: Fleet) -> None:
    body: dict[str, Any] = {"model": "sim", "messages": SAID, "max_tokens": 2000}
    headers = {"content-type": "application/json"}
    for path in ("/v1/chat/completions", "/v3/chat/completions"):
        status, _, answer = session_fleet.request(
            "POST", path, json.dumps(body | {"thinking_token_budget": 5}), headers
        )
        assert status == 400
        assert "'thinking_token_budget' is not supported with this model" in answer.decode()
    body |= {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    status, found, answer = session_fleet.request("POST", "/v1/messages", json.dumps(body), headers)
    assert (status, found["x-ignored-fields"]) == (200, "thinking.budget_tokens")


def test_it_streams_before_the_content(session_fleet: Fleet) -> None:
    with session_fleet.client() as client:
        stream = client.chat.completions.create(model="sim", messages=SAID, reasoning_effort="low", stream=True)
        deltas = [rechecked(chunk).choices[0].delta for chunk in stream]
    pieces = [(delta.model_extra or {}).get("reasoning_content") for delta in deltas]
    assert pieces == [(delta.model_extra or {}).get("reasoning") for delta in deltas]
    assert "".join(piece or "" for piece in pieces) == "Two and two."
    assert "".join(delta.content or "" for delta in deltas) == "Four it is."
    last = max(place for place, piece in enumerate(pieces) if piece)
    assert not any(delta.content for delta in deltas[: last + 1])


def test_the_model_server_and_azure_tell_it_too(session_fleet: Fleet) -> None:
    body = {"model": "sim", "messages": SAID, "chat_template_kwargs": {"enable_thinking": True}}
    headers = {"content-type": "application/json", "extra-parameters": "pass-through"}
    for path in ("/v3/chat/completions", AZURE):
        status, _, answer = session_fleet.request("POST", path, json.dumps(body), headers)
        assert status == 200, answer
        message = json.loads(answer)["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("Two and two.", "Four it is.")

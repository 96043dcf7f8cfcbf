"""vLLM's /tokenize and /detokenize, with a simulated worker."""

import json
from typing import Any

from tests.support.fleet import Fleet


def post(fleet: Fleet, path: str, headers: dict[str, str] | None = None, **fields: Any) -> tuple[int, dict[str, Any]]:
    sent = {"content-type": "application/json", **(headers or {})}
    status, _, body = fleet.request("POST", path, json.dumps({"model": "sim", **fields}), sent)
    return status, json.loads(body)


def test_a_text_becomes_tokens_and_a_text_again(session_fleet: Fleet) -> None:
    text = "the quick red fox, é!"
    status, found = post(session_fleet, "/tokenize", prompt=text)
    assert (status, found["count"], found["token_strs"]) == (200, len(found["tokens"]), None)
    assert found["max_model_len"] > 0
    assert post(session_fleet, "/detokenize", tokens=found["tokens"]) == (200, {"prompt": text})
    _, shown = post(session_fleet, "/tokenize", prompt="the red", return_token_strs=True)
    assert shown["token_strs"] == ["t", "h", "e", " red"]


def test_an_empty_text_has_no_tokens(session_fleet: Fleet) -> None:
    status, found = post(session_fleet, "/tokenize", prompt="")
    assert (status, found["count"], found["tokens"]) == (200, 0, [])
    assert post(session_fleet, "/detokenize", tokens=[]) == (200, {"prompt": ""})


def test_a_prompt_may_be_longer_than_the_context(session_fleet: Fleet) -> None:
    _, short = post(session_fleet, "/tokenize", prompt="x")
    status, found = post(session_fleet, "/tokenize", prompt="x" * (short["max_model_len"] + 1))
    assert (status, found["count"]) == (200, short["max_model_len"] + 1)


def test_messages_have_as_many_tokens_as_an_answer_counts(session_fleet: Fleet) -> None:
    messages = [{"role": "user", "content": "hello"}]
    _, found = post(session_fleet, "/tokenize", messages=messages)
    _, answer = post(session_fleet, "/v1/chat/completions", messages=messages, max_tokens=1)
    assert found["count"] == answer["usage"]["prompt_tokens"]


def test_anthropics_count_is_that_of_the_answer(session_fleet: Fleet) -> None:
    headers = {"anthropic-version": "2023-06-01"}
    messages = [{"role": "user", "content": "hello"}]
    status, found = post(session_fleet, "/v1/messages/count_tokens", headers, messages=messages)
    _, answer = post(session_fleet, "/v1/messages", headers, messages=messages, max_tokens=1)
    assert (status, found) == (200, {"input_tokens": answer["usage"]["input_tokens"]})
    status, error = post(session_fleet, "/v1/messages/count_tokens", headers, model="none", messages=messages)
    assert (status, error["error"]["type"]) == (404, "not_found_error")

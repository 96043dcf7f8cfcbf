"""Cached tokens in the usage of every interface."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.conftest import MODEL
from tests.support.fleet import Fleet

QUESTION = "Which of these towns has a lighthouse? " + ", ".join(f"Town {number}" for number in range(60)) + "."
MESSAGES = [{"role": "user", "content": QUESTION}]


def of_openai(usage: dict[str, Any]) -> tuple[int, int]:
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def of_responses(usage: dict[str, Any]) -> tuple[int, int]:
    return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]


def of_messages(usage: dict[str, Any]) -> tuple[int, int]:
    return usage["input_tokens"] + usage["cache_read_input_tokens"], usage["cache_read_input_tokens"]


HEADERS = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
CHAT: dict[str, Any] = {"messages": MESSAGES, "max_tokens": 3}


@pytest.mark.parametrize(
    ("path", "fields", "counts"),
    [
        ("/v1/chat/completions", CHAT, of_openai),
        ("/v1/chat/completions", CHAT | {"n": 3, "temperature": 1}, of_openai),
        ("/v1/chat/completions", CHAT | {"logprobs": True, "top_logprobs": 2}, of_openai),
        ("/v1/responses", {"input": MESSAGES, "max_output_tokens": 16, "store": False}, of_responses),
        ("/v1/messages", CHAT, of_messages),
    ],
)
def test_a_second_request_finds_the_prompt_of_the_first(
    real_fleet: Fleet, path: str, fields: dict[str, Any], counts: Callable[[dict[str, Any]], tuple[int, int]]
) -> None:
    def usage() -> tuple[int, int]:
        status, _, body = real_fleet.request("POST", path, json.dumps({"model": MODEL, **fields}), HEADERS)
        assert status == 200, body
        return counts(json.loads(body)["usage"])

    usage()
    prompt, cached = usage()
    assert prompt > 100
    assert prompt - 32 <= cached < prompt  # all but what is in the last block


def test_completions_count_every_prompt(real_fleet: Fleet) -> None:
    def usage(*prompts: str) -> tuple[int, int]:
        body = json.dumps({"model": MODEL, "prompt": prompts, "max_tokens": 2})
        status, _, answer = real_fleet.request("POST", "/v1/completions", body)
        assert status == 200, answer
        return of_openai(json.loads(answer)["usage"])

    one, other = f"One: {QUESTION}", f"Two: {QUESTION}"
    assert usage(one)[1] == 0
    _, cached = usage(one)
    assert cached > 100
    assert usage(one, other)[1] == cached
    assert usage(one, other)[1] > 2 * cached - 32

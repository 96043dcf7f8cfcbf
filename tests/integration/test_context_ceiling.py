"""A ``max_tokens`` beyond the context: the response ends with the context, on every route and in batches."""

import json
from typing import Any

import pytest

from tests.support.batches import chat_line, ended, results, submit
from tests.support.fleet import SIMULATED, Fleet
from tests.support.fleet_fixture import fleet_fixture

CONTEXT = 300
HUGE = 2**31 - 1
TEXT = f"[[tokens {HUGE}]] hello"
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": TEXT}]}
AZURE = "?api-version=2024-05-01-preview"
ROUTES = [
    ("/v1/chat/completions", "max_tokens", CHAT),
    ("/v1/chat/completions", "max_completion_tokens", CHAT),
    ("/v1/completions", "max_tokens", {"prompt": TEXT}),
    ("/v1/responses", "max_output_tokens", {"input": TEXT}),
    ("/v1/messages", "max_tokens", CHAT),
    ("/v3/chat/completions", "max_tokens", CHAT),
    ("/v3/completions", "max_tokens", {"prompt": TEXT}),
    ("/v3/responses", "max_output_tokens", {"input": TEXT}),
    (f"/chat/completions{AZURE}", "max_tokens", CHAT),
]

target = fleet_fixture(*SIMULATED, "--model", f"sim=[[context {CONTEXT}]]")


def used(answer: dict[str, Any]) -> int:
    usage = answer["usage"]
    return sum(usage.get(field, 0) for field in ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"))


def reason(answer: dict[str, Any]) -> Any:
    if "choices" in answer:
        return answer["choices"][0]["finish_reason"]
    return answer.get("stop_reason") or answer["incomplete_details"]["reason"]


@pytest.mark.parametrize(("path", "field", "body"), ROUTES)
def test_the_response_ends_with_the_context(target: Fleet, path: str, field: str, body: dict[str, Any]) -> None:
    for wanted in (HUGE, CONTEXT):
        status, _, answer = target.request("POST", path, json.dumps({"model": "sim", field: wanted} | body))
        assert status == 200, answer
        document = json.loads(answer)
        assert used(document) == CONTEXT
        assert reason(document) in ("length", "max_output_tokens", "model_context_window_exceeded")


def test_a_line_of_a_batch_ends_with_the_context(target: Fleet) -> None:
    client = target.client()
    batch = ended(client, submit(client, [chat_line("a", TEXT, max_tokens=HUGE)]))
    (line,) = results(client, batch.output_file_id)
    assert used(line["response"]["body"]) == CONTEXT


def test_only_a_prompt_without_room_is_refused(target: Fleet) -> None:
    body = {"model": "sim", "messages": [{"role": "user", "content": "word " * CONTEXT}]}
    status, _, answer = target.request("POST", "/v1/chat/completions", json.dumps(body))
    assert (status, json.loads(answer)["error"]["code"]) == (400, "context_length_exceeded")


def test_a_keys_limit_below_max_tokens_refuses_nothing(target: Fleet) -> None:
    secret = target.key("create", "--tokens-per-minute", "5000").splitlines()[-1]
    headers = {"content-type": "application/json", "authorization": f"Bearer {secret}"}
    body = json.dumps({"model": "sim", "max_tokens": 32_000} | CHAT)

    def served() -> bool:
        status, found, answer = target.request("POST", "/v1/chat/completions", body, headers)
        assert status in (200, 401), answer
        return status == 200 and "x-ratelimit-limit-tokens" in found

    target.until(served, "the key to take effect")

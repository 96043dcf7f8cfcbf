"""``--default-max-tokens`` and a key's own, in all dialects."""

import json
from typing import Any

from tests.support.fleet import Fleet

HELLO = [{"role": "user", "content": "Hello"}]
CHAT = {"messages": HELLO}
PATHS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", CHAT),
    ("/v1/responses", {"input": "Hello"}),
    ("/v3/chat/completions", CHAT),
    ("/v3/completions", {"prompt": "Hello"}),
    ("/v3/responses", {"input": "Hello"}),
    ("/chat/completions?api-version=2024-05-01-preview", CHAT),
]


def ending(answer: dict[str, Any]) -> tuple[Any, int]:
    """Why an answer ended, and its number of tokens."""
    usage = answer["usage"]
    if "output" in answer:
        return answer["incomplete_details"]["reason"], usage["output_tokens"]
    return answer["choices"][0]["finish_reason"], usage["completion_tokens"]


def test_outputs_without_a_maximum_end_at_the_default(empty_fleet: Fleet) -> None:
    empty_fleet.worker()
    empty_fleet.api("--default-max-tokens", "5")
    for path, body in PATHS:
        status, _, answer = empty_fleet.request("POST", path, json.dumps({"model": "sim"} | body))
        assert status == 200, answer
        reason = "max_output_tokens" if "responses" in path else "length"
        assert ending(json.loads(answer)) == (reason, 5), path
    body = {"model": "sim", "max_tokens": 9} | CHAT
    _, _, answer = empty_fleet.request("POST", "/v1/chat/completions", json.dumps(body))
    assert ending(json.loads(answer)) == ("length", 9)
    secret = empty_fleet.key("create", "--default-max-tokens", "3").splitlines()[-1]
    headers = {"content-type": "application/json", "authorization": f"Bearer {secret}"}

    def limited() -> bool:
        body = json.dumps({"model": "sim"} | CHAT)
        status, _, answer = empty_fleet.request("POST", "/v1/chat/completions", body, headers)
        return status == 200 and ending(json.loads(answer)) == ("length", 3)

    empty_fleet.until(limited, "the key to take effect")

"""What a model writes to itself, in each interface, through a simulated fleet."""

import json
from typing import Any

from tests.support.fleet import Fleet

SAID: list[Any] = [{"role": "user", "content": "[[say <think>Two and two.</think>Four it is.]]"}]


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

"""What programs send: bodies recorded from them, with one conversation of two turns where they have tools.

Each line of ``client_bodies.jsonl`` has the client with its version, the path, the status that it must get, and the
body.
Texts, paths, arguments and ids of sessions are replaced.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import Fleet
from tests.support.fleet_fixture import fleet_fixture

BODIES = [json.loads(line) for line in Path(__file__).with_name("client_bodies.jsonl").read_text().splitlines()]
ENDS = {
    "/v1/chat/completions": "data: [DONE]",
    "/v1/responses": "event: response.completed",
    "/v1/messages": "event: message_stop",
}
"""What only a whole stream of each path has."""

long_fleet = fleet_fixture("--engine", "simulated", "--model", "sim=[[context 200000]]", "--sim-step", "0.005")


@pytest.mark.parametrize("sent", BODIES, ids=lambda sent: f"{sent['client']} {sent['path']}")
def test_what_a_client_sends_is_served(long_fleet: Fleet, sent: dict[str, Any]) -> None:
    status, headers, answer = long_fleet.request("POST", sent["path"], json.dumps(sent["body"]))
    assert status == sent["status"], answer
    assert "x-ignored-fields" not in headers
    path = sent["path"].partition("?")[0]
    if sent["body"].get("stream"):
        assert ENDS[path] in answer.decode()
    else:
        whole = json.loads(answer)
        assert whole.get("error") is None
        assert whole.get("input_tokens") or whole.get("usage")

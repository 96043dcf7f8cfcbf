"""Calls that random weights are forced to write in a family's own format, through the HTTP API and back."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.parsers.formats import MARKERS
from tests.support.fleet import PATIENT, Fleet, exact, fleet
from tests.support.gguf_files import tiny_llama
from tests.unit.worker.prompt import families

FAMILIES = {
    "harmony": families.HARMONY,
    "kimi_k2": families.KIMI_K2,
    "kimi_k3": families.KIMI_K3,
    "minimax_m3": families.MINIMAX_M3,
    "onyx": families.ONYX,
}
PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Oslo", "Rome"]},
        "code": {"type": "string", "pattern": "^[A-C]{2}$"},
        "days": {"type": "integer", "enum": [3, 14]},
    },
    "required": ["city", "code", "days"],
    "additionalProperties": False,
}
TOOL = {"name": "forecast", "description": "Returns the weather.", "parameters": PARAMETERS, "strict": True}
QUESTION = {"role": "user", "content": "What will the weather be?"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("families"), lease=PATIENT) as started:
        started.api()
        yield started


@pytest.mark.parametrize("name", FAMILIES)
def test_a_forced_call_comes_back_and_is_answered(running: Fleet, name: str, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    tokens = sorted(MARKERS)
    # The other templates end turns with tokens that do so by their names.
    end = {"tokenizer.ggml.eot_token_id": 3 + tokens.index("<|eot|>")} if name == "onyx" else {}
    file.write_bytes(tiny_llama(metadata={"tokenizer.chat_template": FAMILIES[name], **end}, specials=tokens))
    worker = running.worker(*exact(f"{name}={file}"))

    def chat(messages: list[dict[str, Any]], **fields: Any) -> tuple[int, dict[str, Any]]:
        tools = [{"type": "function", "function": TOOL}]
        asked = {"model": name, "messages": messages, "tools": tools, "temperature": 2, "seed": 5, **fields}
        status, _, reply = running.request("POST", "/v1/chat/completions", json.dumps(asked))
        return status, json.loads(reply)

    # Kimi K2's template has no reasoning. A random model would seldom end it.
    budget = {} if name == "kimi_k2" else {"thinking_token_budget": 4}
    status, reply = chat([QUESTION], tool_choice="required", max_tokens=900, parallel_tool_calls=False, **budget)
    assert status == 200, reply
    (choice,) = reply["choices"]
    assert choice["finish_reason"] == "tool_calls", json.dumps(reply)
    for call in choice["message"]["tool_calls"]:
        assert call["function"]["name"] == "forecast"
        arguments = json.loads(call["function"]["arguments"])
        assert arguments["city"] in ("Oslo", "Rome")
        assert set(arguments["code"]) <= {*"ABC"}
        assert arguments["days"] in (3, 14)
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "Snow."} for call in choice["message"]["tool_calls"]
    ]
    status, second = chat([QUESTION, choice["message"], *results], max_tokens=4)
    assert status == 200, second
    assert second["usage"]["prompt_tokens"] > reply["usage"]["prompt_tokens"]
    _, _, models = running.request("GET", "/v1/models")
    (served,) = (one for one in json.loads(models)["data"] if one["id"] == name)
    assert served["formats"]["tool_parser"] == name
    worker.stop()

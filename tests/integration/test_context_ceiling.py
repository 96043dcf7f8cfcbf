"""A ``max_tokens`` beyond the context: the response ends with the context, on every route and in batches."""

import json
from typing import Any

import pytest

from tests.support.batches import chat_line, ended, results, submit
from tests.support.dialects import DIALECTS, Tried
from tests.support.fleet import SIMULATED, Fleet
from tests.support.fleet_fixture import fleet_fixture

CONTEXT = 300
HUGE = 2**31 - 1
TEXT = f"[[tokens {HUGE}]] hello"
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": TEXT}]}
ROUTES = [(tried, tried.known.limit) for tried in DIALECTS.values()] + [(DIALECTS["chat"], "max_completion_tokens")]

target = fleet_fixture(*SIMULATED, "--model", f"sim=[[context {CONTEXT}]]")


COUNTS = (
    "prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "prompt_eval_count", "eval_count",
)  # fmt: skip


def used(answer: dict[str, Any]) -> int:
    usage = answer.get("usage", answer)
    return sum(usage.get(field, 0) for field in COUNTS)


def reason(answer: dict[str, Any]) -> Any:
    if "choices" in answer:
        return answer["choices"][0]["finish_reason"]
    return answer.get("stop_reason") or answer.get("done_reason") or answer["incomplete_details"]["reason"]


@pytest.mark.parametrize(("tried", "field"), ROUTES, ids=lambda value: str(getattr(value, "known", value)))
def test_the_response_ends_with_the_context(target: Fleet, tried: Tried, field: str) -> None:
    for wanted in (HUGE, CONTEXT):
        body = tried.body(TEXT, "sim", **{field: wanted}) | {"stream": False}
        status, _, answer = target.request("POST", tried.path, json.dumps(body))
        assert status == 200, answer
        document = json.loads(answer)
        assert used(document) == CONTEXT
        assert reason(document) in ("length", "max_output_tokens", "model_context_window_exceeded")


def test_a_line_of_a_batch_ends_with_the_context(target: Fleet) -> None:
    client = target.client()
    batch = ended(client, submit(client, [chat_line("a", TEXT, max_tokens=HUGE)]))
    (line,) = results(client, batch.output_file_id)
    assert used(line["response"]["body"]) == CONTEXT

"""Fields that need logits in a fleet: workers that do not serve them, and workers that die."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import Fleet, Process, exact
from tests.support.logits_reference import Reference

TINY = Path(__file__).parents[1] / "models" / "qwen2-byte-level-bpe"
TOKENS = 1500


@pytest.fixture
def running(empty_fleet: Fleet) -> Fleet:
    empty_fleet.api()
    return empty_fleet


WORKER = exact(f"tiny={TINY}", "--cache-size", "1")


def worker(fleet: Fleet, logits: str = "auto") -> Process:
    return fleet.worker(*WORKER, "--logits", logits)


def test_a_killed_worker_costs_no_log_probability(running: Fleet) -> None:
    """The prompt's come once, and each token of the text has its most likely ones."""
    first = worker(running)
    prompt = random.Random(3).choices(range(400), k=120)
    fields: dict[str, Any] = {"max_tokens": TOKENS, "temperature": 0, "echo": True, "logprobs": 2}
    with running.client() as client:
        stream = client.completions.create(
            model="tiny", prompt=prompt, stream=True, extra_body={"ignore_eos": True}, **fields
        )
        chunks = [next(iter(stream))]
        first.kill()
        second = running.start("worker", *WORKER)
        chunks += stream
    logs = second.log.read_text()
    assert "continues here after" in logs, logs
    parts = [part.logprobs.to_dict() for chunk in chunks for part in chunk.choices if part.logprobs is not None]
    found: dict[str, list[Any]] = {field: [value for part in parts for value in part[field]] for field in parts[0]}
    assert {len(values) for values in found.values()} == {len(prompt) + TOKENS}
    status, _, body = running.request(
        "POST",
        "/v1/completions",
        json.dumps({"model": "tiny", "prompt": prompt, "ignore_eos": True, "return_token_ids": True, **fields}),
    )
    assert status == 200, body
    (whole,) = json.loads(body)["choices"]
    assert found["tokens"] == whole["logprobs"]["tokens"]
    assert found["text_offset"] == whole["logprobs"]["text_offset"]
    rows = Reference(TINY).logprobs((*prompt, *whole["token_ids"]))
    expected = [float(row[token]) for row, token in zip(rows, (*prompt[1:], *whole["token_ids"]), strict=False)]
    assert found["token_logprobs"][0] is None
    assert found["token_logprobs"][1:] == pytest.approx(expected, abs=1e-3)
    best = [max(top.values()) for top in found["top_logprobs"][1:]]
    assert best == pytest.approx(rows[: len(best)].max(1).tolist(), abs=1e-3)


def test_one_worker_without_logits_is_enough_to_refuse(running: Fleet) -> None:
    """All workers of a model share its queue, so the answer must not depend on which of them claims the job."""

    def ask(**fields: Any) -> tuple[int, Any]:
        body = json.dumps({"model": "tiny", "prompt": "Hi", "max_tokens": 2, **fields})
        status, _, answer = running.request("POST", "/v1/completions", body)
        return status, json.loads(answer)

    wishes: dict[str, Any] = {"logit_bias": {"5": 1}, "prompt_logprobs": 1, "bad_words": ["a"], "logprobs": 1}
    worker(running)
    for field, value in wishes.items():
        assert ask(**{field: value})[0] == 200
    without = worker(running, "off")
    # On a busy machine, the record of a worker expires now and then, and the API forgets it for a moment.
    refusals: dict[str, Any] = {}

    def is_refused(field: str) -> bool:
        status, refusals[field] = ask(**{field: wishes[field]})
        # Until the API knows of the worker, the worker itself refuses, by the name that the field has in chats.
        return status == 400 and refusals[field]["error"]["param"] != "top_logprobs"

    for field in wishes:
        running.until(lambda field=field: is_refused(field), "the API to know of the worker without logits")  # type: ignore[misc]
        error = refusals[field]["error"]
        assert (error["param"], error["code"]) == (field, "unsupported_parameter")
    assert ask()[0] == 200
    without.stop()
    running.until(lambda: ask(logit_bias={"5": 1})[0] == 200, "the fields to be served again")

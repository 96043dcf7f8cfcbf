"""Raw calls in OpenVINO Model Server's form, on the real model."""

import json
import math
from typing import Any

from tests.acceptance.conftest import MODEL
from tests.support.fleet import Fleet

FRANCE = [{"role": "user", "content": "What is the capital of France?"}]


def post(fleet: Fleet, **fields: Any) -> dict[str, Any]:
    raw = json.dumps({"model": MODEL, "messages": FRANCE, "max_tokens": 24, "temperature": 0} | fields)
    status, _, answer = fleet.request("POST", "/v3/chat/completions", raw)
    assert status == 200, answer
    whole: dict[str, Any] = json.loads(answer)
    return whole


def text(fleet: Fleet, **fields: Any) -> str:
    content: str = post(fleet, **fields)["choices"][0]["message"]["content"]
    return content


def stream(fleet: Fleet, **fields: Any) -> list[dict[str, Any]]:
    raw = json.dumps({"model": MODEL, "messages": FRANCE, "max_tokens": 24, "temperature": 0, "stream": True} | fields)
    status, _, answer = fleet.request("POST", "/v3/chat/completions", raw)
    assert status == 200, answer
    *events, done, _ = answer.decode().split("\n\n")
    assert done == "data: [DONE]"
    return [json.loads(event.removeprefix("data: "))["choices"][0]["delta"] for event in events]


def test_an_answer_whole_and_streamed(real_fleet: Fleet) -> None:
    whole = post(real_fleet)
    content = whole["choices"][0]["message"]["content"]
    assert "Paris" in content
    deltas = stream(real_fleet)
    assert deltas[0] == {"role": "assistant", "content": None}
    assert "".join(delta.get("content") or "" for delta in deltas) == content
    assert whole["usage"]["total_tokens"] == whole["usage"]["prompt_tokens"] + whole["usage"]["completion_tokens"]


def test_a_stop_string_ends_a_stream_and_is_shown_there(real_fleet: Fleet) -> None:
    assert text(real_fleet, stop="Paris").endswith(" ")
    shown = "".join(delta.get("content") or "" for delta in stream(real_fleet, stop="Paris"))
    assert shown.endswith("Paris")


def test_log_probabilities_belong_to_the_text(real_fleet: Fleet) -> None:
    choice = post(real_fleet, logprobs=True)["choices"][0]
    tokens = choice["logprobs"]["content"]
    assert b"".join(bytes(token["bytes"]) for token in tokens).decode() == choice["message"]["content"]
    assert all(token["logprob"] <= 0 and math.isfinite(token["logprob"]) for token in tokens)


def test_sampling_settings_reach_the_engine(real_fleet: Fleet) -> None:
    greedy = text(real_fleet)
    assert text(real_fleet, temperature=1.5, top_k=1) == greedy
    assert text(real_fleet, temperature=1.5, min_p=0.99) == greedy
    assert text(real_fleet, repetition_penalty=3.0) != greedy
    assert text(real_fleet, temperature=1.5, top_k=-1, seed=3) == text(real_fleet, temperature=1.5, top_k=-1, seed=3)


def test_the_models_own_sampling_holds_where_nobody_sets_one(real_fleet: Fleet) -> None:
    """The reference's defaults are 1.0; the default model's authors recommend others."""
    question = [{"role": "user", "content": "Tell me a story."}]

    def text_with(**sampling: float | None) -> str:
        return text(real_fleet, messages=question, seed=3, **sampling)

    own = text_with(temperature=None)
    assert own == text_with(temperature=0.2, top_p=0.9)
    assert own != text_with(temperature=1.0, top_p=1.0)


def test_ignoring_the_end_fills_the_limit(real_fleet: Fleet) -> None:
    answer = post(real_fleet, messages=[{"role": "user", "content": "Say hi."}], ignore_eos=True, max_tokens=64)
    assert answer["usage"]["completion_tokens"] == 64
    assert answer["choices"][0]["finish_reason"] == "length"


def test_special_tokens_are_shown_where_asked_for(real_fleet: Fleet) -> None:
    fields: dict[str, Any] = {"ignore_eos": True, "max_tokens": 64}
    assert "<|im_end|>" in text(real_fleet, skip_special_tokens=False, **fields)
    assert "<|im_end|>" not in text(real_fleet, **fields)


def test_a_structural_form_holds(real_fleet: Fleet) -> None:
    assert text(real_fleet, response_format={"type": "const_string", "value": "Hello World!"}) == "Hello World!"
    digits = text(real_fleet, response_format={"type": "regex", "pattern": "[0-9]{4}"})
    assert len(digits) == 4
    assert digits.isdecimal()


def test_a_plain_completion_writes_on(real_fleet: Fleet) -> None:
    body = {"model": MODEL, "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0, "logprobs": 1}
    status, _, raw = real_fleet.request("POST", "/v3/completions", json.dumps(body))
    assert status == 200, raw
    whole = json.loads(raw)
    assert "Paris" in whole["choices"][0]["text"]
    assert len(whole["choices"][0]["logprobs"]["tokens"]) == whole["usage"]["completion_tokens"]

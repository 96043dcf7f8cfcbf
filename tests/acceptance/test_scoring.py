"""Log probabilities of prompts through the whole service, as evaluation harnesses read them."""

import json
import random
from pathlib import Path
from typing import Any

import numpy
import openvino_genai
import pytest

from tests.support.fleet import Fleet, exact
from tests.support.fleet_fixture import fleet_fixture
from tests.support.logits_reference import Reference

TINY = Path(__file__).parents[1] / "models" / "qwen2-byte-level-bpe"
WORDS = 423


running = fleet_fixture(*exact(f"tiny={TINY}", "--cache-size", "1"))


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(TINY)


def ask(fleet: Fleet, path: str = "completions", **fields: Any) -> dict[str, Any]:
    status, _, body = fleet.request("POST", f"/v1/{path}", json.dumps({"model": "tiny", **fields}))
    assert status == 200, body
    answer: dict[str, Any] = json.loads(body)
    return answer


def prompts_of(count: int) -> list[list[int]]:
    """Questions that share a beginning, with different answers."""
    draw = random.Random(5)
    shared = draw.choices(range(WORDS), k=50)
    return [shared + draw.choices(range(WORDS), k=1 + number % 9) for number in range(count)]


def expected_of(reference: Reference, tokens: list[int]) -> list[float]:
    rows = reference.logprobs(tuple(tokens))
    return [float(row[token]) for row, token in zip(rows, tokens[1:], strict=False)]


@pytest.mark.parametrize("most", [0, 1])
def test_what_an_evaluation_harness_sends(running: Fleet, reference: Reference, most: int) -> None:
    """A batch of prompts as token ids; it reads ``token_logprobs``, and whether each token is the most likely one."""
    prompts = prompts_of(24)
    answer = ask(running, prompt=prompts, echo=True, logprobs=1, max_tokens=most, temperature=0, seed=1234)
    assert [choice["index"] for choice in answer["choices"]] == list(range(24))
    for prompt, choice in zip(prompts, answer["choices"], strict=True):
        logprobs = choice["logprobs"]
        own = logprobs["token_logprobs"][: len(prompt)]
        assert own[0] is None
        assert own[1:] == pytest.approx(expected_of(reference, prompt), abs=1e-3)
        assert {len(values) for values in logprobs.values()} == {len(prompt) + most}
        rows = reference.logprobs(tuple(prompt))
        for token, value, top, row in zip(prompt[1:], own[1:], logprobs["top_logprobs"][1:], rows, strict=False):
            greedy = value == max(top.values())
            if abs(row[token] - numpy.delete(row, token).max()) > 1e-3:
                assert greedy == (row.argmax() == token)
        assert choice["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 24 * most
    assert answer["usage"]["prompt_tokens"] == sum(map(len, prompts))


def test_a_text_and_its_token_ids_have_the_same_log_probabilities(running: Fleet, reference: Reference) -> None:
    text = "The quick brown fox.\nÄpfel, 한, 🙂!"
    tokenizer = openvino_genai.Tokenizer(str(TINY))
    ids = [int(token) for token in tokenizer.encode(text, add_special_tokens=False).input_ids.data[0]]
    fields: dict[str, Any] = {"echo": True, "logprobs": 0, "max_tokens": 2, "temperature": 0, "n": 2}
    (first, second), (third, fourth) = (ask(running, prompt=prompt, **fields)["choices"] for prompt in (text, ids))
    assert first["text"].startswith(text)
    for other in (second, third, fourth):
        assert other["text"] == first["text"]
        assert other["logprobs"] == first["logprobs"] | {"token_logprobs": other["logprobs"]["token_logprobs"]}
        assert other["logprobs"]["token_logprobs"][1:] == pytest.approx(
            first["logprobs"]["token_logprobs"][1:], abs=1e-3
        )
    assert first["logprobs"]["token_logprobs"][1 : len(ids)] == pytest.approx(expected_of(reference, ids), abs=1e-3)
    logprobs = first["logprobs"]
    for offset, piece in list(zip(logprobs["text_offset"], logprobs["tokens"], strict=True))[: len(ids)]:
        assert text[offset:].startswith(piece) or piece.startswith("bytes:")


def test_a_stream_begins_with_the_prompt(running: Fleet) -> None:
    fields: dict[str, Any] = {"prompt": "Hello there", "echo": True, "logprobs": 2, "max_tokens": 3, "temperature": 0}
    whole = ask(running, **fields)["choices"][0]
    body = json.dumps({"model": "tiny", "stream": True, **fields})
    status, _, raw = running.request("POST", "/v1/completions", body)
    assert status == 200
    events = [json.loads(line[6:]) for line in raw.decode().splitlines() if line.startswith("data: {")]
    parts = [event["choices"][0] for event in events]
    assert "".join(part["text"] for part in parts) == whole["text"]
    for field in ("tokens", "text_offset"):
        joined = [value for part in parts if part["logprobs"] for value in part["logprobs"][field]]
        assert joined == whole["logprobs"][field]


def test_prompt_logprobs_in_the_form_of_vllm(running: Fleet, reference: Reference) -> None:
    prompt = prompts_of(1)[0]
    (choice,) = ask(running, prompt=prompt, prompt_logprobs=2, max_tokens=1)["choices"]
    assert choice["logprobs"] is None
    first, *rest = choice["prompt_logprobs"]
    assert first is None
    own = [entry[str(token)]["logprob"] for token, entry in zip(prompt[1:], rest, strict=True)]
    assert own == pytest.approx(expected_of(reference, prompt), abs=1e-3)
    assert all({1, 2} <= {token["rank"] for token in entry.values()} for entry in rest)
    chat = ask(
        running, "chat/completions", messages=[{"role": "user", "content": "Hi"}], prompt_logprobs=0, max_tokens=2, n=2
    )
    assert len(chat["prompt_logprobs"]) == chat["usage"]["prompt_tokens"]
    assert [len(entry) for entry in chat["prompt_logprobs"][1:]] == [1] * (chat["usage"]["prompt_tokens"] - 1)


def test_a_prompt_alone(running: Fleet) -> None:
    """Without log probabilities it is not even computed."""
    (choice,) = ask(running, prompt="Hello", echo=True, max_tokens=0)["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("Hello", "length")


def test_tokens_of_texts_and_messages(running: Fleet) -> None:
    """vLLM's /tokenize and /detokenize, by the model's own tokenizer."""

    def post(path: str, **fields: Any) -> Any:
        status, _, body = running.request("POST", path, json.dumps({"model": "tiny", **fields}))
        assert status == 200, body
        return json.loads(body)

    text = "The quick brown fox. <|im_end|>"
    tokenizer = openvino_genai.Tokenizer(str(TINY))
    ids = [int(token) for token in tokenizer.encode(text, add_special_tokens=True).input_ids.data[0]]
    found = post("/tokenize", prompt=text, return_token_strs=True)
    assert found["tokens"] == ids
    assert "".join(found["token_strs"]) == text
    assert post("/detokenize", tokens=ids) == {"prompt": text}
    messages = [{"role": "user", "content": "Hi"}]
    whole, part = (post("/tokenize", messages=messages, add_generation_prompt=more)["tokens"] for more in (True, False))
    assert whole[: len(part)] == part
    assert post("/detokenize", tokens=whole[len(part) :])["prompt"].startswith("<|im_start|>assistant")
    chat = ask(running, "chat/completions", messages=messages, max_tokens=1)
    assert chat["usage"]["prompt_tokens"] == len(whole)
    status, _, body = running.request("POST", "/detokenize", json.dumps({"model": "tiny", "tokens": [10**6]}))
    assert (status, json.loads(body)["error"]["param"]) == (400, "tokens")


def test_tokens_that_may_and_may_not_be_generated(running: Fleet) -> None:
    fields: dict[str, Any] = {"temperature": 0, "max_tokens": 24, "ignore_eos": True, "return_token_ids": True}
    question: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}

    def generated(path: str, **more: Any) -> list[int]:
        tokens: list[int] = ask(running, path, **fields, **more)["choices"][0]["token_ids"]
        assert len(tokens) == 24
        return tokens

    for path, prompt in (("completions", {"prompt": "Hello"}), ("chat/completions", question)):
        free = generated(path, **prompt)
        allowed = [64, 65, 66, 300]
        assert set(generated(path, **prompt, allowed_token_ids=allowed)) <= set(allowed)
        assert free[0] not in generated(
            path, **prompt, allowed_token_ids=[*allowed, free[0]], logit_bias={free[0]: -100}
        )
    letters = [64, 65]  # "a" and "b" in this vocabulary
    words = {token: ask_token(running, token) for token in letters}
    plain = generated("completions", prompt="Hello", allowed_token_ids=letters, logit_bias={64: 50})
    assert set(plain) == {64}
    once = generated(
        "completions", prompt="Hello", allowed_token_ids=letters, bad_words=[words[64]], logit_bias={64: 50}
    )
    assert set(once) == {65}
    twice = generated(
        "completions", prompt="Hello", allowed_token_ids=letters, bad_words=[2 * words[64]], logit_bias={64: 50}
    )
    assert twice == [64, 65] * 12


def ask_token(fleet: Fleet, token: int) -> str:
    """The text of a token, of which the tokenizer makes the same token."""
    body = json.dumps({"model": "tiny", "tokens": [token]})
    text: str = json.loads(fleet.request("POST", "/detokenize", body)[2])["prompt"]
    for count in (1, 2):
        body = json.dumps({"model": "tiny", "prompt": text * count})
        assert json.loads(fleet.request("POST", "/tokenize", body)[2])["tokens"] == [token] * count
    return text


def test_token_ids_are_returned_whole_and_streamed(running: Fleet) -> None:
    fields: dict[str, Any] = {"temperature": 0, "max_tokens": 6, "return_token_ids": True}
    messages = [{"role": "user", "content": "Hi"}]
    prompt = json.loads(running.request("POST", "/tokenize", json.dumps({"model": "tiny", "messages": messages}))[2])
    whole = ask(running, "chat/completions", messages=messages, **fields)
    assert whole["prompt_token_ids"] == prompt["tokens"]
    tokens = whole["choices"][0]["token_ids"]
    assert len(tokens) == whole["usage"]["completion_tokens"]
    body = json.dumps({"model": "tiny", "messages": messages, "stream": True, **fields})
    raw = running.request("POST", "/v1/chat/completions", body)[2].decode()
    events = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith("data: {")]
    assert [event["prompt_token_ids"] for event in events if "prompt_token_ids" in event] == [prompt["tokens"]]
    choices = [event["choices"][0] for event in events]
    assert [token for choice in choices for token in choice.get("token_ids", ())] == tokens
    assert (
        "".join(choice["delta"].get("content") or "" for choice in choices) == whole["choices"][0]["message"]["content"]
    )
    (plain,) = ask(running, prompt=[1, 2, 3], **fields)["choices"]
    assert plain["prompt_token_ids"] == [1, 2, 3]
    body = json.dumps({"model": "tiny", "prompt": [1, 2, 3], "stream": True, **fields})
    raw = running.request("POST", "/v1/completions", body)[2].decode()
    choices = [json.loads(line[6:])["choices"][0] for line in raw.splitlines() if line.startswith("data: {")]
    assert [token for choice in choices for token in choice.get("token_ids", ())] == plain["token_ids"]
    assert [choice["prompt_token_ids"] for choice in choices if "prompt_token_ids" in choice] == [[1, 2, 3]]

"""vLLM's fields through OpenAI's SDK on the real model: each does what it says."""

import json
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tests.acceptance.conftest import MODEL
from tests.support.fleet import Fleet

FRANCE: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
END = "<|im_end|>"
END_TOKEN = 2
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "capital": {"type": "boolean"}},
    "required": ["city", "capital"],
    "additionalProperties": False,
}
NUMBER = {"type": "tag", "begin": "<a>", "content": {"type": "regex", "pattern": "[0-9]{3}"}, "end": "</a>"}
TAG = json.dumps({"type": "structural_tag", "format": NUMBER})


@pytest.fixture
def client(real_fleet: Fleet) -> Iterator[openai.OpenAI]:
    with real_fleet.client() as opened:
        yield opened


def said(client: openai.OpenAI, extra: dict[str, Any], **fields: Any) -> Any:
    """The first choice of a greedy chat."""
    body: dict[str, Any] = {"model": MODEL, "messages": FRANCE, "temperature": 0, "max_tokens": 24} | fields
    return client.chat.completions.create(**body, extra_body=extra).choices[0]


def text(client: openai.OpenAI, extra: dict[str, Any], **fields: Any) -> str:
    content: str = said(client, extra, **fields).message.content
    return content


def test_sampling(client: openai.OpenAI) -> None:
    greedy = text(client, {})
    # With one candidate left, any temperature is greedy.
    assert text(client, {"top_k": 1}, temperature=2, seed=1) == greedy
    assert text(client, {"min_p": 0.999}, temperature=1, seed=1) == greedy
    again: list[Any] = [{"role": "user", "content": "Say the word sea ten times."}]
    assert text(client, {"repetition_penalty": 2.0}, messages=again) != text(client, {}, messages=again)
    plain = client.completions.create(
        model=MODEL, prompt="One, two,", max_tokens=6, temperature=2, seed=1, extra_body={"top_k": 1}
    )
    assert (
        plain.choices[0].text
        == client.completions.create(model=MODEL, prompt="One, two,", max_tokens=6, temperature=0).choices[0].text
    )


def test_when_an_answer_ends(client: openai.OpenAI) -> None:
    whole = said(client, {}, max_tokens=60)
    assert whole.finish_reason == "stop"

    def tokens(extra: dict[str, Any], **fields: Any) -> tuple[int, str]:
        body: dict[str, Any] = {"model": MODEL, "messages": FRANCE, "temperature": 0} | fields
        answer = client.chat.completions.create(**body, extra_body=extra)
        assert answer.usage is not None
        return answer.usage.completion_tokens, answer.choices[0].finish_reason

    length, _ = tokens({}, max_tokens=60)
    assert tokens({"ignore_eos": True}, max_tokens=length + 9) == (length + 9, "length")
    assert tokens({"min_tokens": length + 5}, max_tokens=length + 40)[0] >= length + 5
    listed = said(client, {}, max_tokens=60, logprobs=True).logprobs.content
    vocabulary = client.completions.create(model=MODEL, prompt=[END_TOKEN], max_tokens=1, temperature=0)
    assert vocabulary.choices[0].finish_reason == "length"
    # Stopping at the end token by its id is what happens anyway, even where the end is ignored.
    stopped = said(client, {"ignore_eos": True, "stop_token_ids": [END_TOKEN]}, max_tokens=60)
    assert (stopped.message.content, stopped.finish_reason) == (whole.message.content, "stop")
    assert listed


JSON = r'\{ ?"city": ?"(Paris|Rome)", ?"capital": ?(true|false) ?\}'
STRUCTURES: list[tuple[dict[str, Any], str]] = [
    ({"json": SCHEMA}, JSON),
    ({"json": json.dumps(SCHEMA)}, JSON),
    ({"regex": "(Paris|Rome)!{2}"}, "(Paris|Rome)!!"),
    ({"choice": ["Paris it is", "Rome it is"]}, "(Paris|Rome) it is"),
    ({"choice": ["größte école"]}, "größte école"),
    ({"grammar": 'root ::= "Paris" | "Rome" [0-9]'}, "Paris|Rome[0-9]"),
    ({"structural_tag": TAG}, "<a>[0-9]{3}</a>"),
]


@pytest.mark.parametrize(("form", "pattern"), STRUCTURES, ids=lambda value: str(value)[:30])
def test_structured_outputs(client: openai.OpenAI, form: dict[str, Any], pattern: str) -> None:
    choice = said(client, {"structured_outputs": form}, temperature=1, seed=5, max_tokens=60)
    assert re.fullmatch(pattern, choice.message.content)
    assert choice.finish_reason == "stop"
    plain = client.completions.create(
        model=MODEL, prompt="It is", max_tokens=60, seed=5, extra_body={"structured_outputs": form}
    )
    assert re.fullmatch(pattern, plain.choices[0].text)


def test_a_complete_text_ends_however_many_tokens_are_asked_for(client: openai.OpenAI) -> None:
    choice = said(client, {"structured_outputs": {"choice": ["Paris", "Rome"]}, "min_tokens": 15}, max_tokens=20)
    assert choice.message.content in ("Paris", "Rome")
    assert text(client, {})


def test_an_answer_goes_on_where_the_last_message_ends(client: openai.OpenAI, real_fleet: Fleet) -> None:
    limits: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_tokens": 60}
    whole = client.chat.completions.create(messages=FRANCE, **limits)
    said_first, _, rest = (whole.choices[0].message.content or "").partition(" is")
    rest = f" is{rest}"
    messages: list[Any] = [*FRANCE, {"role": "assistant", "content": said_first}]
    turn = {"continue_final_message": True, "add_generation_prompt": False}
    answer = client.chat.completions.create(messages=messages, **limits, extra_body=turn)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (rest, "stop")
    assert answer.usage is not None
    assert whole.usage is not None
    assert answer.usage.total_tokens == whole.usage.total_tokens
    assert answer.usage.prompt_tokens > whole.usage.prompt_tokens
    stream = client.chat.completions.create(messages=messages, **limits, extra_body=turn, stream=True, stop=[rest[-6:]])
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == rest[:-6]
    body = {"model": MODEL, "messages": messages}
    status, _, counted = real_fleet.request("POST", "/tokenize", json.dumps(body | turn))
    assert (status, json.loads(counted)["count"]) == (200, answer.usage.prompt_tokens)
    status, _, counted = real_fleet.request("POST", "/v1/messages/count_tokens", json.dumps(body))
    assert (status, json.loads(counted)["input_tokens"]) == (200, answer.usage.prompt_tokens)
    status, _, message = real_fleet.request("POST", "/v1/messages", json.dumps(limits | {"messages": messages}))
    assert (status, json.loads(message)["content"][0]["text"]) == (200, rest)


def test_the_tokenizer_is_described(real_fleet: Fleet) -> None:
    """What lm-eval does with ``tokenizer_backend=remote``: it renders the template itself, and names no model."""

    def ask(method: str, path: str, **fields: Any) -> Any:
        status, _, answer = real_fleet.request(method, path, json.dumps(fields) if fields else None)
        assert status == 200, answer
        return json.loads(answer)

    described = ask("GET", "/tokenizer_info")
    assert described["eos_token"] == END
    assert ask("POST", "/tokenize", prompt=END, add_special_tokens=False)["tokens"] == [END_TOKEN]
    template = ImmutableSandboxedEnvironment().from_string(described["chat_template"])
    prompt = template.render(messages=FRANCE, add_generation_prompt=True)
    found = ask("POST", "/tokenize", prompt=prompt, add_special_tokens=False)["tokens"]
    assert found == ask("POST", "/tokenize", messages=FRANCE)["tokens"]
    assert ask("POST", "/detokenize", tokens=found) == {"prompt": prompt}

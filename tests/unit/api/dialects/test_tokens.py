"""Bodies of vLLM's /tokenize and /detokenize, and their responses."""

import json
from typing import Any

import msgspec
import pytest

from api.dialects.base.interface import Asked, Dialect
from api.dialects.openai.parse import parse_chat
from api.dialects.openai.tokens import Templates, Texts, Tokens
from shared.protocol.errors import RequestRefused
from shared.protocol.events import Tokenized
from shared.protocol.request import ChatRequest, Tokenize
from tests.support.dialects import Serving

MESSAGES = [{"role": "user", "content": "Hi"}]
FOUND = Tokenized((5, 7), ("H", "i"), "Hi", 64)


def parse(dialect: type[Dialect], **fields: Any) -> ChatRequest:
    return dialect(Asked(fleet=Serving("m"))).parse(json.dumps(fields).encode())


def tokenize(**fields: Any) -> ChatRequest:
    return parse(Tokens, model="m", **fields)


def wanted(**fields: Any) -> Tokenize:
    asked = tokenize(**fields).work
    assert isinstance(asked, Tokenize)
    assert asked is not None
    return asked


def test_special_tokens_are_added_to_prompts_unless_asked_otherwise() -> None:
    assert wanted(prompt="Hi").add_special_tokens
    assert not wanted(prompt="Hi", add_special_tokens=False).add_special_tokens
    assert not wanted(messages=MESSAGES).add_special_tokens
    assert wanted(messages=MESSAGES, add_special_tokens=True).add_special_tokens


def test_the_prompt_of_a_chat_completion_is_asked_for_as_text() -> None:
    body = {"messages": MESSAGES, "n": 3, "stream": True, "temperature": 1, "reasoning_effort": "none"}
    asked = parse(Templates, **body)
    chat = parse_chat(json.dumps({"model": "m", **body}).encode())
    assert (asked.model, asked.messages, asked.template_kwargs) == ("m", chat.messages, chat.template_kwargs)
    assert (asked.n, asked.response.stream, asked.work) == (1, False, Tokenize(add_special_tokens=False, text=True))
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    with pytest.raises(RequestRefused, match="images"):
        parse(Templates, messages=[{"role": "user", "content": [picture]}])


def test_the_generation_prompt_is_left_out_if_asked_for() -> None:
    assert tokenize(messages=MESSAGES).turn == "opened"
    assert tokenize(messages=MESSAGES, add_generation_prompt=False).turn == "none"


def test_messages_are_those_of_chats() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    fields = {"messages": MESSAGES, "tools": tools, "chat_template_kwargs": {"enable_thinking": False}}
    chat = parse_chat(json.dumps({"model": "m", **fields}).encode())
    asked = tokenize(**fields)
    assert (asked.messages, asked.tools, asked.template_kwargs) == (
        chat.messages,
        chat.tools,
        chat.template_kwargs,
    )
    assert asked.sampling.max_tokens == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("messages", MESSAGES),
        ("tools", [{}]),
        ("chat_template_kwargs", {}),
        ("add_generation_prompt", True),
        ("continue_final_message", False),
    ],
)
def test_fields_of_messages_are_refused_with_a_prompt(field: str, value: object) -> None:
    with pytest.raises(RequestRefused) as refused:
        tokenize(prompt="Hi", **{field: value})
    assert refused.value.problem.param == field


@pytest.mark.parametrize(
    ("dialect", "fields", "param"),
    [
        (Tokens, {}, "prompt"),
        (Tokens, {"prompt": 5}, "prompt"),
        (Tokens, {"messages": [{"role": "nobody", "content": "a"}]}, "messages[0].role"),
        (Tokens, {"prompt": "a", "temperature": 1}, None),
        (Texts, {}, "tokens"),
        (Texts, {"tokens": [-1]}, "tokens[0]"),
        (Texts, {"tokens": "a"}, "tokens"),
    ],
)
def test_what_is_refused_is_named(dialect: type[Dialect], fields: Any, param: str | None) -> None:
    with pytest.raises(RequestRefused) as refused:
        parse(dialect, model="m", **fields)
    assert refused.value.problem.param == param


def test_the_response_has_texts_of_tokens_if_asked_for() -> None:
    plain = {"count": 2, "max_model_len": 64, "tokens": [5, 7], "token_strs": None}
    assert msgspec.json.decode(Tokens().answer(tokenize(prompt="Hi"), [FOUND])) == plain
    shown = Tokens().answer(tokenize(prompt="Hi", return_token_strs=True), [FOUND])
    assert msgspec.json.decode(shown) == plain | {"token_strs": ["H", "i"]}


def test_tokens_become_a_text() -> None:
    asked = parse(Texts, model="m", tokens=[5, 7])
    assert (asked.prompts, asked.work) == (((5, 7),), Tokenize(text=True))
    assert Texts().answer(asked, [FOUND]) == b'{"prompt":"Hi"}'

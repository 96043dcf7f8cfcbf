"""Digests of prompt prefixes."""

import msgspec

from shared.protocol.prefix import LENGTHS, prefix_digests
from shared.protocol.request import ChatRequest, Message, Tool, ToolCall

DIGITS = 16


def request(*contents: str, tools: tuple[Tool, ...] = ()) -> ChatRequest:
    roles = ("system", "user", "assistant")
    messages = (Message(role=role, content=text) for role, text in zip(roles, contents, strict=False))  # type: ignore[arg-type]
    return ChatRequest(model="tiny", messages=tuple(messages), tools=tools)


def digests(request: ChatRequest) -> list[str]:
    """The digests, the shortest beginning's first."""
    text = prefix_digests(request)
    return [text[at : at + DIGITS] for at in range(0, len(text), DIGITS)][::-1]


def shared(one: ChatRequest, other: ChatRequest) -> int:
    """Return how many prefixes have the same digest in both."""
    return len(set(digests(one)) & set(digests(other)))


def test_a_short_prompt_has_none() -> None:
    assert prefix_digests(request("You are kind.", "Hello " * 100)) == ""


def test_one_for_each_length_that_the_prompt_reaches() -> None:
    assert len(digests(request("x" * LENGTHS[0]))) == 1
    assert len(digests(request("x" * LENGTHS[4]))) == 5
    assert len(digests(request("x" * LENGTHS[-1] * 3))) == len(LENGTHS)
    assert len(set(digests(request("x" * LENGTHS[-1])))) == len(LENGTHS)


def test_prompts_share_digests_as_far_as_they_are_alike() -> None:
    one = request("rules " * 500, "What is new?" * 500)
    assert shared(one, request("rules " * 500, "And then?" * 500)) == sum(length <= 3000 for length in LENGTHS)
    assert shared(one, request("Rules " * 500, "What is new?" * 500)) == 0


def test_a_conversation_that_goes_on_keeps_its_digests() -> None:
    before = request("rules " * 100, "What is new?" * 200)
    after = msgspec.structs.replace(before, messages=(*before.messages, Message(role="assistant", content="no " * 900)))
    assert digests(after)[: len(digests(before))] == digests(before)
    assert len(digests(after)) > len(digests(before))


def test_tools_come_first_where_the_model_is_told_of_them() -> None:
    tools = (Tool(name="find", description="d" * 2000),)
    one, other = request("one " * 500, tools=tools), request("two " * 500, tools=tools)
    assert shared(one, other) == sum(length <= 2004 for length in LENGTHS)
    untold = [msgspec.structs.replace(each, tool_choice="none") for each in (one, other)]
    assert shared(*untold) == 0


def test_reasoning_and_calls_count() -> None:
    call = ToolCall(id="1", name="find", arguments='{"a":"' + "x" * 2000 + '"}')
    for message in (
        Message(role="assistant", tool_calls=(call,)),
        Message(role="assistant", reasoning="hm " * 1000),
    ):
        assert prefix_digests(ChatRequest(model="tiny", messages=(message,)))


def test_plain_prompts_have_them_too_but_token_ids_do_not() -> None:
    assert prefix_digests(ChatRequest(model="tiny", prompts=("once " * 1000,)))
    assert prefix_digests(ChatRequest(model="tiny", prompts=(tuple(range(5000)),))) == ""


def test_any_text_has_them() -> None:
    assert prefix_digests(request("Größe 漢字 🙂 " * 300))

"""Anthropic's Messages, with its SDK and a simulated worker."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.eventually import PATIENCE
from tests.support.fleet import Fleet

if TYPE_CHECKING:
    import anthropic
    from anthropic.types import MessageParam, ToolUseBlockParam
    from anthropic.types.beta import BetaMessageParam

HELLO: "MessageParam" = {"role": "user", "content": "hello"}


@pytest.fixture
def client(session_fleet: Fleet) -> Iterator["anthropic.Anthropic"]:
    import anthropic

    with anthropic.Anthropic(
        base_url=f"http://127.0.0.1:{session_fleet.port}", api_key="none", max_retries=0, timeout=PATIENCE
    ) as opened:
        yield opened


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_is_too_long_is_refused_in_words_that_clients_recognise(
    client: "anthropic.Anthropic", stream: bool
) -> None:
    import anthropic

    (model,) = client.models.list()
    limit = model.max_input_tokens
    assert limit is not None
    counted = client.messages.count_tokens(model="sim", messages=[HELLO]).input_tokens
    longer: MessageParam = {"role": "user", "content": "hello" + "x" * limit}
    with pytest.raises(anthropic.BadRequestError) as refusal:
        client.messages.create(model="sim", max_tokens=5, messages=[longer], stream=stream)
    assert f"prompt is too long: {counted + limit} tokens > {limit} maximum" in str(refusal.value)


def test_an_output_may_fill_the_context(client: "anthropic.Anthropic") -> None:
    (model,) = client.models.list()
    limit = model.max_input_tokens
    assert limit is not None
    long: MessageParam = {"role": "user", "content": "[[tokens 30]]" + "x" * (limit - 100)}
    prompt = client.messages.count_tokens(model="sim", messages=[long]).input_tokens
    answer = client.messages.create(model="sim", max_tokens=limit, messages=[long])
    assert (answer.stop_reason, answer.usage.output_tokens) == ("end_turn", 30)
    longest: MessageParam = {"role": "user", "content": "x" * (limit - prompt - 10) + str(long["content"])}
    with client.messages.stream(model="sim", max_tokens=limit, messages=[longest]) as streamed:
        full = streamed.get_final_message()
    assert (full.stop_reason, full.usage.output_tokens) == ("model_context_window_exceeded", 10)


def test_beta_clients_are_served(client: "anthropic.Anthropic") -> None:
    """The header anthropic-beta changes nothing."""
    said: list[BetaMessageParam] = [{"role": "user", "content": "hello"}]
    betas = ["context-1m-2025-08-07", "interleaved-thinking-2025-05-14"]
    answer = client.beta.messages.create(model="sim", max_tokens=5, messages=said, betas=betas)
    assert answer.stop_reason == "max_tokens"
    with client.beta.messages.stream(model="sim", max_tokens=5, messages=said, betas=betas) as stream:
        assert stream.get_final_message().usage.output_tokens == 5


@pytest.mark.parametrize("stream", [False, True])
def test_the_tool_runner_goes_on_without_a_thread(client: "anthropic.Anthropic", stream: bool) -> None:
    import anthropic

    @anthropic.beta_tool
    def weather(city: str) -> str:
        """Return the weather in a city."""
        return f"[[say Sunny in {city}.]]"

    call = '[[say <tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>]]'
    asked: list[BetaMessageParam] = [{"role": "user", "content": call}]
    runner: Any = client.beta.messages.tool_runner(
        model="sim", max_tokens=100, tools=[weather], messages=asked, stream=stream
    )
    replies = [reply.get_final_message() if stream else reply for reply in runner]
    assert [reply.stop_reason for reply in replies] == ["tool_use", "end_turn"]
    assert replies[1].content[0].text == "Sunny in Rome."


def test_odd_but_legal_conversations_are_served(client: "anthropic.Anthropic") -> None:
    call: ToolUseBlockParam = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
    other: ToolUseBlockParam = {"type": "tool_use", "id": "t2", "name": "f", "input": {}}
    messages: list[MessageParam] = [
        HELLO,
        {"role": "assistant", "content": [call, other]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t2", "content": []}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}, {"type": "text", "text": "Go on."}]},
        {"role": "assistant", "content": []},
        {"role": "system", "content": "Be brief."},
        HELLO,
    ]
    answer = client.messages.create(model="sim", max_tokens=5, messages=messages)
    assert (answer.stop_reason, answer.usage.output_tokens) == ("max_tokens", 5)
    again: list[MessageParam] = [*messages, {"role": "assistant", "content": answer.content}, HELLO]
    with client.messages.stream(model="sim", max_tokens=5, messages=again) as stream:
        assert stream.get_final_message().usage.output_tokens == 5

"""What an operator sets for a model's chats."""

import json
from typing import Any

import pytest

from shared.protocol.request import ChatRequest, Message
from worker.prompt.child import with_defaults

USER = Message(role="user", content="Hi")
SYSTEM = Message(role="system", content="Be brief.")


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ((USER,), (SYSTEM, USER)),
        ((Message(role="system", content="Sing."), USER), (Message(role="system", content="Sing."), USER)),
        ((USER, Message(role="developer", content="Sing.")), (USER, Message(role="developer", content="Sing."))),
    ],
)
def test_the_system_prompt_is_that_of_chats_without_one(
    messages: tuple[Message, ...], expected: tuple[Message, ...]
) -> None:
    assert with_defaults(ChatRequest(model="m", messages=messages), {}, "Be brief.").messages == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {"style": "old", "enable_thinking": False, "thinking": False}),
        ({"style": "new"}, {"style": "new", "enable_thinking": False, "thinking": False}),
        ({"reasoning_effort": "high"}, {"style": "old", "reasoning_effort": "high"}),
        ({"thinking": True}, {"style": "old", "thinking": True}),
    ],
)
def test_a_clients_variables_win_and_those_of_reasoning_together(
    given: dict[str, Any] | None, expected: dict[str, Any]
) -> None:
    request = ChatRequest(model="m", messages=(USER,), template_kwargs=json.dumps(given) if given else None)
    defaults = {"style": "old", "enable_thinking": False, "thinking": False}
    assert json.loads(with_defaults(request, defaults, "").template_kwargs or "") == expected


def test_a_plain_completion_has_no_defaults_of_chats() -> None:
    request = ChatRequest(model="m", prompts=("Hi",))
    assert with_defaults(request, {"style": "old"}, "Be brief.") == request

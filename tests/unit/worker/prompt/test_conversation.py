"""Requests become template variables in the form that each kind of template shows whole."""

from typing import Any

import pytest

from shared.protocol.errors import ProblemKind, RequestRefused
from shared.protocol.request import ChatRequest, Message, Tool, ToolCall
from worker.prompt.conversation import template_variables
from worker.prompt.facts import TemplateFacts
from worker.prompt.probe import probe
from worker.prompt.template import ChatTemplate

CALLS = (ToolCall(id="call_1", name="look", arguments='{"at": "sky", "far": true}'),)
HISTORY = (
    Message(role="system", content="Be brief."),
    Message(role="user", content="What is up?", name="ann"),
    Message(role="assistant", reasoning="Hm.", tool_calls=CALLS),
    Message(role="tool", content="clouds", tool_call_id="call_1"),
)


def _template(source: str) -> ChatTemplate:
    return ChatTemplate(source, bos_token="", eos_token="")


def _variables(form: TemplateFacts | None = None, **request: Any) -> dict[str, Any]:
    return template_variables(ChatRequest(model="m", **request), form or TemplateFacts(), lambda text: text, str)


def test_a_whole_history_in_the_usual_form() -> None:
    variables = _variables(messages=HISTORY)
    assert variables["add_generation_prompt"] is True
    assert variables["tools"] is None
    assert variables["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is up?", "name": "ann"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "Hm.",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "look", "arguments": {"at": "sky", "far": True}},
                }
            ],
        },
        {"role": "tool", "content": "clouds", "tool_call_id": "call_1"},
    ]


def test_tools_are_openais_objects_and_hidden_where_none_may_be_called() -> None:
    tools = (Tool(name="look", description="Looks.", parameters='{"type":"object"}', strict=True), Tool(name="wait"))
    assert _variables(messages=HISTORY, tools=tools)["tools"] == [
        {
            "type": "function",
            "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}, "strict": True},
        },
        {"type": "function", "function": {"name": "wait", "parameters": {"type": "object", "properties": {}}}},
    ]
    assert _variables(messages=HISTORY, tools=tools, tool_choice="none")["tools"] is None


def test_template_kwargs_reach_the_template_but_replace_nothing_of_ours() -> None:
    variables = _variables(messages=HISTORY, template_kwargs='{"enable_thinking": false, "messages": []}')
    assert variables["enable_thinking"] is False
    assert len(variables["messages"]) == len(HISTORY)


@pytest.mark.parametrize(
    ("request_fields", "param"),
    [
        ({"template_kwargs": "[1]"}, "chat_template_kwargs"),
        ({"template_kwargs": "{"}, "chat_template_kwargs"),
        ({"template_kwargs": '{"a":' + "[" * 5000 + "]" * 5000 + "}"}, "chat_template_kwargs"),
        ({"tools": (Tool(name="a"), Tool(name="b", parameters="{"))}, "tools[1].function.parameters"),
    ],
)
def test_bad_json_is_refused_by_field(request_fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        _variables(messages=HISTORY, **request_fields)
    assert (caught.value.problem.kind, caught.value.problem.param) == (ProblemKind.INVALID, param)


def test_broken_arguments_of_an_earlier_call_stay_text() -> None:
    broken = Message(role="assistant", tool_calls=(ToolCall(id="1", name="look", arguments='{"at": '),))
    call = _variables(messages=(broken,))["messages"][0]["tool_calls"][0]
    assert call["function"]["arguments"] == '{"at": '


def test_developer_is_system_where_the_template_does_not_know_it() -> None:
    messages = (Message(role="developer", content="x"),)
    plain = probe(_template("{{ messages[0].role }}"))
    knowing = probe(_template("{{ '#' if messages[0].role == 'developer' }}{{ messages[0].content }}"))
    assert _variables(plain, messages=messages)["messages"][0]["role"] == "system"
    assert _variables(knowing, messages=messages)["messages"][0]["role"] == "developer"


OBJECTS = "{{ c.function.arguments | tojson }}"
TEXT = "{{ '' + c.function.arguments }}"
EITHER = "{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}"
CALL = (
    '{% for c in m.tool_calls or [] %}<tool_call>{"name": "{{ c.function.name }}", "arguments": {ARGUMENTS}}'
    "</tool_call>{% endfor %}"
)
ANY_CONTENT = "{{ tools }}{% for m in messages %}{{ m.content or '' }}" + CALL + "{% endfor %}"
ONLY_NULL = (
    "{{ tools }}{% for m in messages %}{% if m.content is none %}" + CALL + "{% else %}{{ m.content }}{% endif %}"
    "{% endfor %}"
)


@pytest.mark.parametrize(
    ("source", "objects", "null"),
    [
        (ANY_CONTENT.replace("{ARGUMENTS}", OBJECTS), True, False),
        (ANY_CONTENT.replace("{ARGUMENTS}", TEXT), False, False),
        (ANY_CONTENT.replace("{ARGUMENTS}", EITHER), True, False),
        (ONLY_NULL.replace("{ARGUMENTS}", OBJECTS), True, True),
        (ONLY_NULL.replace("{ARGUMENTS}", TEXT), False, True),
        ("{% for m in messages %}{{ m.role + m.content }}{% endfor %}", True, False),
    ],
)
def test_the_form_of_tool_calls_is_learnt_from_the_template(source: str, objects: bool, null: bool) -> None:
    form = probe(_template(source))
    assert (form.object_arguments, form.null_content) == (objects, null)


def test_reasoning_goes_where_the_template_looks() -> None:
    messages = (Message(role="assistant", content="a", reasoning="b"),)
    form = probe(_template("{% for m in messages %}{{ m.thinking }}{% endfor %}"))
    assert _variables(form, messages=messages)["messages"][0]["thinking"] == "b"


def test_every_text_of_a_client_is_cleaned() -> None:
    request = ChatRequest(
        model="m",
        messages=(
            Message(role="user", content="c", name="n"),
            Message(
                role="assistant", reasoning="r", tool_calls=(ToolCall(id="i", name="f", arguments='{"k": ["v"]}'),)
            ),
            Message(role="tool", content="t", tool_call_id="i"),
        ),
        tools=(Tool(name="tn", description="td", parameters='{"pk": {"pv": "s"}}'),),
        template_kwargs='{"ek": "ev"}',
    )
    seen: list[str] = []
    template_variables(request, TemplateFacts(), lambda text: seen.append(text) or text, str)  # type: ignore[func-returns-value]
    assert {"c", "n", "r", "i", "f", "k", "v", "t", "tn", "td", "pk", "pv", "s", "ek", "ev"} <= set(seen)


PARTS = "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        (ANY_CONTENT.replace("{ARGUMENTS}", EITHER), False),
        ("{% for m in messages %}{{ m.role }}{% endfor %}", False),
        (PARTS, True),
        ("{% for m in messages %}{{ m.content if m.content is string else m.content[0].text }}{% endfor %}", False),
        ("{% if messages[0].content is string %}{{ raise_exception('parts only') }}{% endif %}" + PARTS, True),
    ],
)
def test_the_form_of_content_is_learnt_from_the_template(source: str, parts: bool) -> None:
    form = probe(_template(source))
    assert form.parts is parts
    content = _variables(form, messages=(Message(role="user", content="x"),))["messages"][0]["content"]
    assert content == ([{"type": "text", "text": "x"}] if parts else "x")


def test_system_messages_are_seen_in_templates_of_parts() -> None:
    assert probe(_template(PARTS)).system

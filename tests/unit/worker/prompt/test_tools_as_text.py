"""Tools for a template that knows none: nothing of the conversation gets lost, and the template sees plain messages."""

from shared.protocol.request import ChatRequest, Message, Tool, ToolCall
from worker.prompt.tools import supports_tools, with_tools_as_text

TOOL = Tool(name="weather", description='The "weather"', parameters='{"type":"object"}')


def test_a_template_that_mentions_tools_knows_them() -> None:
    assert supports_tools("{% if tools %}...{% endif %}")
    assert not supports_tools("{% for message in messages %}{{ message.content }}{% endfor %}")


def test_tools_are_described_in_the_system_message() -> None:
    history = (Message(role="system", content="Be brief."), Message(role="user", content="Hi"))
    spelled = with_tools_as_text(ChatRequest(model="m", messages=history, tools=(TOOL,)), system=True)
    system, user = spelled.messages
    assert system.role == "system"
    assert system.content.startswith("Be brief.\n\n")
    assert '{"name": "weather", "description": "The \\"weather\\"", "parameters": {"type":"object"}}' in system.content
    assert (user, spelled.tools) == (history[1], ())


def test_without_a_system_message_there_is_one_then() -> None:
    spelled = with_tools_as_text(
        ChatRequest(model="m", messages=(Message(role="user", content="Hi"),), tools=(TOOL,)), system=True
    )
    assert [message.role for message in spelled.messages] == ["system", "user"]


def test_a_model_that_must_not_call_is_told_of_no_tools() -> None:
    chat = ChatRequest(model="m", messages=(Message(role="user", content="Hi"),), tools=(TOOL,), tool_choice="none")
    assert with_tools_as_text(chat, system=True).messages == chat.messages


def test_calls_and_results_in_the_history_become_text() -> None:
    call = ToolCall(id="c1", name="weather", arguments='{"city":"Rome"}')
    history = (
        Message(role="assistant", content="Let me see.", tool_calls=(call,)),
        Message(role="tool", content="Sun", tool_call_id="c1"),
    )
    made, result = with_tools_as_text(ChatRequest(model="m", messages=history), system=True).messages
    assert made.content == ('Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"city":"Rome"}}\n</tool_call>')
    assert made.tool_calls == ()
    assert (result.role, result.content) == ("user", "<tool_response>\nSun\n</tool_response>")


def test_without_system_messages_the_first_user_message_describes_the_tools() -> None:
    history = (Message(role="user", content="Hi"), Message(role="assistant", content="Yes?"))
    spelled = with_tools_as_text(ChatRequest(model="m", messages=history, tools=(TOOL,)), system=False).messages
    assert [message.role for message in spelled] == ["user", "assistant"]
    assert '"name": "weather"' in spelled[0].content
    assert spelled[0].content.endswith("\n\nHi")
    only_assistant = ChatRequest(model="m", messages=history[1:], tools=(TOOL,))
    assert [message.role for message in with_tools_as_text(only_assistant, system=False).messages] == [
        "user",
        "assistant",
    ]


def test_results_are_one_user_message_with_what_the_user_says_next() -> None:
    history = (
        Message(role="tool", content="Sun", tool_call_id="c1"),
        Message(role="tool", content="Rain", tool_call_id="c2"),
        Message(role="user", content="And tomorrow?"),
        Message(role="user", content="Well?"),
    )
    results, later = with_tools_as_text(ChatRequest(model="m", messages=history), system=True).messages
    assert (results.role, later) == ("user", history[3])
    assert results.content == (
        "<tool_response>\nSun\n</tool_response>\n<tool_response>\nRain\n</tool_response>\nAnd tomorrow?"
    )

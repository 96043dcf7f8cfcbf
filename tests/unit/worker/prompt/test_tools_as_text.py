"""Tools for a template that knows none: nothing of the conversation gets lost, and the template sees plain messages."""

from shared.protocol.request import ChatRequest, Message, Tool, ToolCall
from worker.prompt.tools import with_tools_as_text

TOOL = Tool(name="weather", description='The "weather"', parameters='{"type":"object"}')


def test_tools_are_described_in_the_system_message() -> None:
    history = (Message(role="system", content="Be brief."), Message(role="user", content="Hi"))
    spelled = with_tools_as_text(ChatRequest(model="m", messages=history, tools=(TOOL,)))
    system, user = spelled.messages
    assert system.role == "system"
    assert system.content.startswith("Be brief.\n\n")
    assert '{"name": "weather", "description": "The \\"weather\\"", "parameters": {"type":"object"}}' in system.content
    assert (user, spelled.tools) == (history[1], ())


def test_without_a_system_message_there_is_one_then() -> None:
    spelled = with_tools_as_text(ChatRequest(model="m", messages=(Message(role="user", content="Hi"),), tools=(TOOL,)))
    assert [message.role for message in spelled.messages] == ["system", "user"]


def test_a_model_that_must_not_call_is_told_of_no_tools() -> None:
    chat = ChatRequest(model="m", messages=(Message(role="user", content="Hi"),), tools=(TOOL,), tool_choice="none")
    assert with_tools_as_text(chat).messages == chat.messages


def test_calls_and_results_in_the_history_become_text() -> None:
    call = ToolCall(id="c1", name="weather", arguments='{"city":"Rome"}')
    history = (
        Message(role="assistant", content="Let me see.", tool_calls=(call,)),
        Message(role="tool", content="Sun", tool_call_id="c1"),
    )
    made, result = with_tools_as_text(ChatRequest(model="m", messages=history)).messages
    assert made.content == ('Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"city":"Rome"}}\n</tool_call>')
    assert made.tool_calls == ()
    assert (result.role, result.content) == ("user", "<tool_response>\nSun\n</tool_response>")

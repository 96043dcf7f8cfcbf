"""What a chat template does is found by rendering, and what it refuses or loses is replaced."""

import json
import re
from functools import cache

import pytest

from shared.parsers import CallArguments, CallOpened, parser_for
from shared.parsers.formats import OutputFormat, ReasoningFormatName, ToolFormatName
from shared.protocol.request import ChatRequest, Message, Tool, ToolCall
from tests.unit.worker.prompt import families
from worker.prompt.conversation import render
from worker.prompt.facts import TemplateFacts
from worker.prompt.probe import probe
from worker.prompt.template import ChatTemplate

LFM2_TOKENS = ("<|tool_call_start|>", "<|tool_call_end|>")
FAMILIES = {name: text for name, text in vars(families).items() if name.isupper() and isinstance(text, str)}
TOOL = Tool(name="weather", parameters='{"type": "object", "properties": {"city": {"type": "string"}}}')
OTHER = Tool(name="clock", description="Tells the time.")
SYSTEM = Message(role="system", content="Sysrules")
SYSTEM_LATER = Message(role="system", content="Syslater")
USER = Message(role="user", content="Usertext")
AGAIN = Message(role="user", content="Askedagain")
ANSWER = Message(role="assistant", content="Answertext")
CALL = ToolCall(id="call_0a1b2c3d4e5f6a7b", name="weather", arguments='{"city": "Rome"}')
SECOND = ToolCall(id="call_ffffffffffffffff", name="clock", arguments='{"zone": "CET"}')
CALLS = Message(role="assistant", tool_calls=(CALL,))
RESULT = Message(role="tool", content="Sunresult", tool_call_id=CALL.id)
OTHER_RESULT = Message(role="tool", content="Noonresult", tool_call_id=SECOND.id)
BOTH = (TOOL, OTHER)


@cache
def _facts(source: str) -> TemplateFacts:
    return probe(_template(source), LFM2_TOKENS if source == families.LFM2 else ())


@cache
def _template(source: str) -> ChatTemplate:
    return ChatTemplate(source, bos_token="", eos_token="")


def _shown(source: str, *messages: Message, tools: tuple[Tool, ...] = BOTH) -> str:
    return render(_template(source), ChatRequest(model="m", messages=messages, tools=tools), _facts(source))


@pytest.mark.parametrize(
    ("source", "tools", "reasoning", "as_text"),
    [
        (families.CHATML, "hermes", None, True),
        (families.HERMES, "hermes", "think", False),
        (families.QWEN_CODER, "qwen3_coder", "think", False),
        (families.OVMS_QWEN_CODER, "qwen3_coder", "think", False),
        (families.MISTRAL, "mistral", None, False),
        (families.MISTRAL_ARGS, "mistral_args", None, False),
        (families.LLAMA3, "llama3_json", None, False),
        (families.HARMONY, "harmony", "harmony", False),
        (families.GRANITE, "granite", "think", False),
        (families.LFM2, "lfm2", None, False),
        (families.PHI4_MINI, "phi4", None, False),
        (families.DEEPSEEK, "hermes", "think", True),
        (families.DEEPSEEK_WITH_TOOLS, "deepseek_v3", "think", False),
        (families.GLM, "glm47", "think", False),
        (families.KIMI_K3, "kimi_k3", "kimi_k3", False),
        (families.MINIMAX_M3, "minimax_m3", "minimax_m3", False),
        (families.KIMI_K2, "kimi_k2", None, False),
        (families.UNQUOTED, "llama_pythonic", None, False),
        (families.DESCRIBED, "hermes", None, False),
        (families.GEMMA, "hermes", None, True),
    ],
)
def test_the_format_is_that_of_calls_that_the_template_writes(
    source: str, tools: ToolFormatName, reasoning: ReasoningFormatName | None, as_text: bool
) -> None:
    facts = _facts(source)
    assert facts.output == OutputFormat(tools=tools, reasoning=reasoning)
    assert facts.tools_as_text is as_text


@pytest.mark.parametrize("name", FAMILIES)
def test_a_call_in_the_history_is_what_the_parser_reads(name: str) -> None:
    source = FAMILIES[name]
    prompt = _shown(source, USER, CALLS, RESULT)
    start = _shown(source, USER).removesuffix("<think>\n").removesuffix("<think></think>")
    text = prompt.removeprefix(start).partition(RESULT.content)[0]
    parser = parser_for(_facts(source).output, BOTH)
    assert parser is not None
    parts = [*parser.feed(text), *parser.finish()]
    assert [part.name for part in parts if isinstance(part, CallOpened)] == ["weather"]
    arguments = "".join(part.text for part in parts if isinstance(part, CallArguments))
    assert json.loads(arguments) == {"city": "Rome"}


CONVERSATIONS = {
    "system": (SYSTEM, USER),
    "a later system message": (USER, SYSTEM, AGAIN),
    "a system message after the answer": (USER, ANSWER, SYSTEM, AGAIN),
    "two system messages": (SYSTEM, Message(role="system", content="Sysmore"), USER, SYSTEM_LATER, AGAIN),
    "a call": (USER, CALLS, RESULT),
    "an answer after a call": (SYSTEM, USER, CALLS, RESULT, ANSWER, AGAIN),
    "two calls": (USER, Message(role="assistant", tool_calls=(CALL, SECOND)), RESULT, OTHER_RESULT),
    "a user after a result": (USER, CALLS, RESULT, AGAIN),
    "two users": (USER, AGAIN),
    "the assistant first": (ANSWER, USER),
    "two assistants": (USER, ANSWER, Message(role="assistant", content="Moreanswer"), AGAIN),
    "empty arguments": (
        USER,
        Message(role="assistant", tool_calls=(ToolCall(id=CALL.id, name="weather", arguments=""),)),
    ),
    "cut arguments": (
        USER,
        Message(role="assistant", tool_calls=(ToolCall(id=CALL.id, name="weather", arguments='{"city": "Ro'),)),
        RESULT,
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_no_shape_of_conversation_is_refused_and_no_text_is_lost(name: str) -> None:
    for shape, messages in CONVERSATIONS.items():
        prompt = _shown(FAMILIES[name], *messages)
        assert "weather" in prompt, shape
        assert "clock" in prompt, shape
        for message in messages:
            assert prompt.count(message.content or "weather") == 1 or not message.content, shape
            for call in message.tool_calls:
                value = call.arguments.split('"')[3] if call.arguments else call.name
                assert value in prompt, shape
        contents = [message.content for message in messages if message.content]
        places = [prompt.index(text) for text in contents if not text.startswith("Sys")]
        assert shape == "two calls" or places == sorted(places), shape


def test_call_ids_are_short_where_the_template_wants_that() -> None:
    (written,) = re.findall(r'"id": "(.*?)"', _shown(families.MISTRAL, USER, CALLS, RESULT))
    assert re.fullmatch("[a-z0-9]{9}", written)
    assert f'"call_id": "{written}"' in _shown(families.MISTRAL, USER, CALLS, RESULT)
    assert CALL.id in _shown(families.MISTRAL.replace(" | length != 9", " is none"), USER, CALLS, RESULT)


def test_call_ids_say_the_tool_and_a_number_where_the_template_writes_them_in_calls() -> None:
    prompt = _shown(families.KIMI_K2, *CONVERSATIONS["two calls"])
    assert "<|tool_call_begin|>functions.clock:1<|tool_call_argument_begin|>" in prompt
    assert "<|im_tool|>functions.weather:0<|im_middle|>Sunresult" in prompt
    assert "call_ids_mapped" in _facts(families.KIMI_K2).formats.replaced


def test_instructions_stay_when_a_result_is_the_last_message() -> None:
    assert "Sysrules" in _shown(families.MISTRAL, SYSTEM, USER, CALLS, RESULT)


def test_content_reasoning_and_a_call_may_be_one_message() -> None:
    message = Message(role="assistant", content="Looktext", reasoning="Thoughttext", tool_calls=(CALL,))
    prompt = _shown(families.HARMONY, USER, message, RESULT)
    assert prompt.index("Looktext") < prompt.index("analysis<|message|>Thoughttext") < prompt.index("Rome")


def test_a_tool_needs_no_description() -> None:
    assert "type weather" in _shown(families.HARMONY, USER, tools=(TOOL,))


@pytest.mark.parametrize("name", ["CHATML", "DEEPSEEK", "GEMMA", "NO_SYSTEM"])
def test_tools_are_text_where_the_template_shows_none_or_calls_are_in_an_unknown_format(name: str) -> None:
    assert "You can call functions" in _shown(FAMILIES[name], USER)


@pytest.mark.parametrize("source", [families.LLAMA3, families.HARMONY])
def test_each_call_is_followed_by_its_result_where_the_template_takes_one_at_a_time(source: str) -> None:
    prompt = _shown(source, *CONVERSATIONS["two calls"])
    places = [prompt.rindex(text) for text in ("Rome", "Sunresult", "CET", "Noonresult")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("source", "written"),
    [
        (families.GRANITE, '<|tool_call|>[{"name": "weather", "arguments": {"city": "Rome"}}]'),
        (families.LFM2, "<|tool_call_start|>[weather(city='Rome')]<|tool_call_end|>"),
        (families.PHI4_MINI, '<|tool_call|>[{"name": "weather", "arguments": {"city": "Rome"}}]<|/tool_call|>'),
        (families.UNQUOTED, "<|python_start|>[weather(city='Rome')]<|python_end|>"),
    ],
)
def test_calls_that_the_template_loses_are_written_into_the_content(source: str, written: str) -> None:
    assert written in _shown(source, USER, CALLS, RESULT)


@pytest.mark.parametrize("source", [families.CHATML, families.HERMES])
def test_turns_are_as_they_are_where_the_template_takes_them(source: str) -> None:
    turns = {"system_messages_merged", "user_turn_added", "tool_results_bridged", "turns_merged"}
    assert not turns & set(_facts(source).formats.replaced)


@pytest.mark.parametrize(
    ("source", "tool_parser", "reasoning_parser", "tools", "reasoning", "as_text"),
    [
        (families.HERMES, "qwen3_coder", "auto", "qwen3_coder", "think", False),
        (families.HERMES, "none", "none", None, None, False),
        (families.CHATML, "llama3_json", "think", "llama3_json", "think", True),
        (families.CHATML, "none", "auto", None, None, True),
        (families.LFM2, "lfm2", "auto", "lfm2", None, False),
    ],
)
def test_a_format_that_the_operator_names_replaces_the_one_that_the_template_shows(
    source: str, tool_parser: str, reasoning_parser: str, tools: str | None, reasoning: str | None, as_text: bool
) -> None:
    facts = probe(_template(source), (), tool_parser, reasoning_parser)
    assert (facts.output.tools, facts.output.reasoning, facts.tools_as_text) == (tools, reasoning, as_text)


def test_users_see_what_is_replaced() -> None:
    assert {"call_ids_mapped", "turns_merged"} <= set(_facts(families.MISTRAL).formats.replaced)
    assert str(_facts(families.CHATML).formats).startswith("tool calls: hermes, reasoning: none, replaced: tools as")


@pytest.mark.parametrize("source", [families.GEMMA, families.NO_SYSTEM])
def test_a_system_message_that_is_refused_or_lost_is_in_the_users_turn(source: str) -> None:
    assert "Sysrules\n\nUsertext" in _shown(source, SYSTEM, USER, tools=())


def test_arguments_as_text_become_objects_for_the_filter_from_json() -> None:
    assert _facts(families.OVMS_QWEN_CODER) == _facts(families.QWEN_CODER)
    text = _template("{{ '{\"a\": 1}' | from_json }}{{ {'b': 2} | fromjson }}").render({})
    assert text == "{'a': 1}{'b': 2}"


def test_no_tools_are_an_undefined_variable_where_none_fails() -> None:
    assert "Usertext" in _shown(families.QWEN_CODER, USER, tools=())
    assert _facts("{{ tools is none }}{% for m in messages %}{{ m.content }}{% endfor %}").tools_variable

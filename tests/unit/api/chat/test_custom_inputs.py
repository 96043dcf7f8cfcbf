"""Inputs of custom tools: the string in the arguments, however these are cut into pieces."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.chat.custom_inputs import CustomInputs
from api.chat.reader import ChoiceReader
from api.dialects.base.custom_tools import custom_tool
from shared.parsers import CallArguments, CallClosed, CallOpened, Content, Part
from shared.parsers.formats import TOOL_FORMATS, ToolFormatName
from shared.protocol.events import Delta, Started
from shared.protocol.request import ChatRequest, Message, ToolCall
from tests.support.answers import UsageRecorder
from worker.prompt.tools import written_calls


def decoded(pieces: list[str], name: str = "c") -> list[Part]:
    inputs = CustomInputs({"c"})
    parts: list[Part] = [CallOpened(0, "id", name), *(CallArguments(0, piece) for piece in pieces), CallClosed(0)]
    return [out for part in parts for out in inputs.decode([part])]


def text_of(parts: list[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, CallArguments))


@given(data=st.data(), text=st.text('ab"\\\n\t/é한\U0001f600\x00', max_size=12), ascii_only=st.booleans())
def test_the_input_does_not_depend_on_cuts(data: st.DataObject, text: str, ascii_only: bool) -> None:
    arguments = json.dumps({"input": text}, ensure_ascii=ascii_only)
    cuts = data.draw(st.lists(st.integers(0, len(arguments)), max_size=8))
    places = sorted({0, len(arguments), *cuts})
    parts = decoded([arguments[start:end] for start, end in pairwise(places)])
    assert text_of(parts) == text
    assert all(part.text for part in parts if isinstance(part, CallArguments))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("{}", ""),
        ('{"input": ""}', ""),
        ('{ "text" : "a", "more": "b"}', "a"),
        ('{"input": 12}', '{"input": 12}'),
        ('{"input": {"a": "b"}}', '{"input": {"a": "b"}}'),
        ('{"input": "cut \\', "cut "),
        ('{"input": "cut \\u00', "cut "),
        (r'{"input": "\ud83d!"}', "\ufffd!"),
        (r'{"input": "\ud83d\n"}', "\ufffd\n"),
        (r'{"input": "\ud83d\u0041"}', "\ufffdA"),
        (r'{"input": "\ud83d\ud83d\ude00"}', "\ufffd\U0001f600"),
        (r'{"input": "\ude00"}', "\ufffd"),
        (f'{{"{"k" * 500}": "a"}}', f'{{"{"k" * 500}": "a"}}'),
    ],
)
def test_other_arguments(arguments: str, expected: str) -> None:
    assert text_of(decoded([arguments])) == expected
    assert text_of(decoded(list(arguments))) == expected


def test_other_calls_and_parts_pass() -> None:
    assert text_of(decoded(['{"input": "a"}'], name="f")) == '{"input": "a"}'
    inputs = CustomInputs({"c"})
    parts: list[Part] = [Content("x"), CallOpened(0, "i", "c"), CallArguments(0, '{"input": "a"}'), CallClosed(0)]
    parts += [CallOpened(1, "j", "f"), CallArguments(1, "{}"), CallClosed(1), CallOpened(2, "k", "c")]
    parts += [CallArguments(2, '{"input": "b"}')]
    found = list(inputs.decode(parts))
    assert [part.text for part in found if isinstance(part, CallArguments)] == ["a", "{}", "b"]
    assert len(found) == len(parts)


INPUT = 'Hi "you" \\ one\ntwo'


@pytest.mark.parametrize("tools", TOOL_FORMATS)
def test_a_call_that_the_length_cuts_has_the_input_so_far(tools: ToolFormatName) -> None:
    request = ChatRequest(
        model="m",
        messages=(Message(role="user", content="Hi"),),
        tools=(custom_tool("c", None, grammar=None, param="tools[0]"),),
    )
    text = written_calls([ToolCall(id="1", name="c", arguments=json.dumps({"input": INPUT}))], tools, str)
    shown = []
    for end in range(text.index("Hi") + 2, len(text) + 1):
        reader = ChoiceReader(request, Started("w", 1, "fp", tools=tools), UsageRecorder())
        parts = reader.read(Delta(0, (1,), text[:end]))
        rest, _ = reader.finish("length")
        shown.append(text_of([part for part, _ in parts + rest]))
    assert shown == sorted(shown, key=len)
    assert all(INPUT.startswith(one) for one in shown)
    assert (shown[0], shown[-1]) == ("Hi", INPUT)

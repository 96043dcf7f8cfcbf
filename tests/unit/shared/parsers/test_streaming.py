"""Parsers emit text as soon as its meaning is certain."""

import pytest

from shared.parsers import CallArguments, CallClosed, CallOpened, Content, Part, Reasoning, parser_for
from shared.parsers.formats import OutputFormat
from tests.support.operations import operations
from tests.unit.shared.parsers.transcript import TOOLS, TRANSCRIPTS, Transcript

QWEN3 = Transcript(name="", text="", tools="hermes", reasoning="think")


def seen(parts: list[Part]) -> list[str | tuple[str, ...]]:
    """Parts without their ids."""
    return [
        ("open", part.name) if isinstance(part, CallOpened) else "close" if isinstance(part, CallClosed) else part.text
        for part in parts
    ]


def test_plain_chats_have_no_parser() -> None:
    assert parser_for(OutputFormat()) is None
    assert parser_for(OutputFormat(), TOOLS) is None
    assert parser_for(OutputFormat(tools="hermes")) is None


def test_content_is_held_back_only_where_a_marker_may_begin() -> None:
    parser = QWEN3.parser()
    assert parser.feed("Look") == [Content("Look")]
    assert parser.feed(" a <b> <tool") == [Content(" a <b>")]
    assert parser.feed("box> c") == [Content(" <toolbox> c")]
    assert parser.feed("\n") == []
    assert parser.feed("d") == [Content("\nd")]
    assert parser.feed("<tool_call") == []
    assert parser.finish() == [Content("<tool_call")]


def test_reasoning_streams() -> None:
    parser = QWEN3.parser()
    assert parser.feed("<think>\n") == []
    assert parser.feed("Well") == [Reasoning("Well")]
    assert parser.feed(", so") == [Reasoning(", so")]
    assert parser.feed(".\n</thi") == [Reasoning(".")]
    assert parser.feed("nk>\n\nHello") == [Content("Hello")]


def test_arguments_stream_as_they_are_made() -> None:
    parser = QWEN3.parser()
    assert parser.feed('<tool_call>\n{"name": "get_weather", "argu') == []
    assert seen(parser.feed('ments": {"ci')) == [("open", "get_weather"), '{"ci']
    assert parser.feed('ty": "Pa') == [CallArguments(0, 'ty": "Pa')]
    assert seen(parser.feed('ris"}}')) == ['ris"}', "close"]
    assert parser.feed("\n</tool_call>") == []
    assert parser.finish() == []


def test_python_arguments_are_sent_one_by_one() -> None:
    python = Transcript(name="", text="", tools="llama_pythonic").parser()
    assert seen(python.feed("[get_weather(city='Pa")) == [("open", "get_weather"), '{"city": ']
    assert seen(python.feed("ris', days=")) == ['"Paris"', ', "days": ']
    assert seen(python.feed("3)]")) == ["3", "}", "close"]


def test_xml_strings_stream_too() -> None:
    xml = Transcript(name="", text="", tools="qwen3_coder").parser()
    assert seen(xml.feed("<tool_call>\n<function=run-code>\n")) == [("open", "run-code"), "{"]
    assert seen(xml.feed('<parameter=code>\nprint("')) == ['"code": ', '"', 'print(\\"']
    assert seen(xml.feed('hi")\n')) == ['hi\\")']
    assert seen(xml.feed("</parameter>\n</function>")) == ['"', "}", "close"]


def test_a_text_that_turns_out_to_be_other_json_is_released_at_its_first_key() -> None:
    parser = Transcript(name="", text="", tools="llama3_json").parser()
    assert parser.feed('{"answer') == []
    assert parser.feed('": 4') == [Content('{"answer":'), Content(" 4")]
    assert parser.feed("2}") == [Content("2}")]


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda transcript: transcript.name)
def test_a_long_text_is_no_more_work_than_several_short_ones(transcript: Transcript) -> None:
    """Character by character, and at once. Parsers run in the event loop of all clients."""
    parser = transcript.parser()

    def feed(times: int) -> None:
        for piece in transcript.text * times:
            parser.feed(piece)

    feed(1)  # Fills the caches.
    early = operations(lambda: feed(2))
    feed(12)
    assert operations(lambda: feed(2)) < 1.2 * early

    def read(times: int) -> None:
        parser = transcript.parser()
        parser.feed(transcript.text * times)
        parser.finish()

    read(1)
    assert operations(lambda: read(16)) < 2.2 * operations(lambda: read(8))


def test_reasoning_of_harmony_ends_with_its_message() -> None:
    parser = parser_for(OutputFormat(tools="harmony", reasoning="harmony"))
    assert parser is not None
    parser.feed("<|channel|>analysis<|message|>Hm.")
    assert parser.in_reasoning
    parser.feed("<|end|><|start|>assistant<|chan")
    assert not parser.in_reasoning

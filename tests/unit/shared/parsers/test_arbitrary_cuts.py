"""Whatever the text and however it is cut: one meaning, no exception, nothing lost."""
# ruff: noqa: RUF001 (DeepSeek's tokens have full-width bars)

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.parsers.format import Elements
from shared.parsers.formats import MARKERS, REASONING_FORMATS, TOOL_FORMATS
from tests.unit.shared.parsers.reading import read
from tests.unit.shared.parsers.transcript import TRANSCRIPTS, Transcript


def elements_of(elements: Elements | None) -> Sequence[str]:
    """The tags of arguments."""
    return () if elements is None else (elements.call, elements.begin, elements.value_end, elements.call_end)


FRAGMENTS = (
    *("<tool_call>", "</tool_call>", "<function=", "get_time>", "<parameter=", "a>", "</parameter>", "</function>"),
    *("<|python_tag|>", "<|python_start|>", "<|python_end|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "functools"),
    *("<|tool_call|>", "<|/tool_call|>", "<think>", "</think>", "[THINK]", "[/THINK]", "get_time", "get_weather"),
    *(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
    ),
    *("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "assistant", "analysis"),
    *(
        "commentary",
        " to=functions.f",
        '{"name": "get_time", "arguments": ',
        '"arguments"',
        '"name"',
        "```json\n",
        "```",
    ),
    *("{", "}", "[", "]", "(", ")", ":", ",", ";", "=", '"', "'", "\\", "\\u00e9", "\\ud83d", "\\x4", "\n", " ", "\t"),
    *("0", "-1.5e3", "1_0", "true", "True", "nul", "None", "a", "é", "🗼", "\x00", "<", "｜"),
)

MARKS = sorted(
    {*MARKERS, *(mark for form in TOOL_FORMATS.values() for mark in (*form.triggers, *form.ends, *form.leads))}
)
SHAPES = sorted(
    {
        text.replace("{name}", "get_weather").replace("{key}", "city").replace("{n}", "0")
        for form in TOOL_FORMATS.values()
        for text in (form.shape.begin, form.shape.end, *form.shape.item, *elements_of(form.shape.elements))
        if text
    }
)
FORMATS = (
    *{(item.tools, item.reasoning, item.in_reasoning): item for item in TRANSCRIPTS}.values(),
    *(Transcript(name="", text="", tools=name) for name in TOOL_FORMATS),
    *(Transcript(name="", text="", reasoning=name) for name in REASONING_FORMATS),
)


@st.composite
def cut_transcripts(draw: st.DrawFn) -> tuple[Transcript, list[str]]:
    """A transcript in pieces, perhaps with a foreign fragment in it."""
    transcript = draw(st.sampled_from(TRANSCRIPTS))
    text = transcript.text
    if draw(st.booleans()):
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(st.sampled_from(FRAGMENTS)) + text[place:]
    return transcript, draw(cuts_of(text))


@st.composite
def cuts_of(draw: st.DrawFn, text: str) -> list[str]:
    """``text`` in pieces."""
    places = sorted(draw(st.sets(st.integers(0, len(text)), max_size=12)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


@given(cut_transcripts())
def test_transcripts_mean_the_same_however_they_are_cut(case: tuple[Transcript, list[str]]) -> None:
    transcript, pieces = case
    text = "".join(pieces)
    whole = read(transcript.parser(), [text])
    assert read(transcript.parser(), pieces) == whole
    assert read(transcript.parser(), text) == whole


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda item: f"{item.tools}-{item.reasoning}-{item.name}")
def test_a_text_that_is_cut_off_shows_a_beginning_of_the_whole_one(transcript: Transcript) -> None:
    whole = read(transcript.parser(), [transcript.text])
    for length in range(len(transcript.text)):
        pieces = [transcript.text[:length]]
        shown = read(transcript.parser(), pieces, cut=True)
        assert whole.content.startswith(shown.content.rstrip()), (length, shown)
        assert whole.reasoning.startswith(shown.reasoning.rstrip()), (length, shown)
        assert [call.name for call in shown.calls] == [call.name for call in whole.calls[: len(shown.calls)]]
        for call, full in zip(shown.calls, whole.calls, strict=False):
            assert full.arguments.startswith(call.arguments) or call.closed, (length, shown)
        if length % 8 == 0:
            assert read(transcript.parser(), transcript.text[:length], cut=True) == shown


@given(st.sampled_from(FORMATS), st.lists(st.sampled_from((*FRAGMENTS, *MARKS, *SHAPES)), max_size=20))
def test_any_row_of_fragments_means_the_same_however_it_is_cut(transcript: Transcript, fragments: list[str]) -> None:
    text = "".join(fragments)
    whole = read(transcript.parser(), [text])
    assert read(transcript.parser(), fragments) == whole
    assert read(transcript.parser(), text) == whole
    # Reasoning and messages may be empty.
    form = TOOL_FORMATS.get(transcript.tools or "")
    if form and form.script is None and transcript.reasoning is None:
        assert whole.content or whole.calls or set(text.split()) <= {"all"}


@given(st.sampled_from(FORMATS), st.text(st.characters(codec="utf-8", exclude_characters="[{<fHt`cA>")))
def test_text_without_markers_comes_through_unchanged(transcript: Transcript, text: str) -> None:
    if not transcript.in_reasoning:
        assert read(transcript.parser(), text).content == text
        assert read(transcript.parser(), text, cut=True).content == text

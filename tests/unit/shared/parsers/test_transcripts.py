"""What models of each family write, read whole, character by character, and cut off early."""

import json

import pytest

from tests.unit.shared.parsers.reading import read
from tests.unit.shared.parsers.transcript import TRANSCRIPTS, Transcript

each = pytest.mark.parametrize(
    "transcript",
    TRANSCRIPTS,
    ids=[f"{item.tools or item.reasoning}: {item.name}" for item in TRANSCRIPTS],
)


@each
def test_the_whole_text(transcript: Transcript) -> None:
    parsed = read(transcript.parser(), [transcript.text])
    assert parsed.content == transcript.content
    assert parsed.reasoning == transcript.thoughts
    assert [(call.name, json.loads(call.arguments)) for call in parsed.calls] == list(transcript.calls)
    assert all(call.closed for call in parsed.calls)


@each
def test_one_character_at_a_time_and_two_pieces_cut_anywhere(transcript: Transcript) -> None:
    whole = read(transcript.parser(), [transcript.text])
    assert read(transcript.parser(), transcript.text) == whole
    for cut in range(len(transcript.text)):
        assert read(transcript.parser(), [transcript.text[:cut], transcript.text[cut:]]) == whole

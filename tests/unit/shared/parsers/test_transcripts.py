"""What models of each family write, read whole, character by character, and cut off early."""

import json

import pytest

from tests.unit.shared.parsers.reading import read
from tests.unit.shared.parsers.transcript import TRANSCRIPTS, Transcript


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda item: f"{item.tools or item.reasoning}: {item.name}")
def test_a_text_means_the_same_however_it_is_cut(transcript: Transcript) -> None:
    """At once, one character at a time, and in two pieces."""
    whole = read(transcript.parser(), [transcript.text])
    assert whole.content == transcript.content
    assert whole.reasoning == transcript.thoughts
    assert [(call.name, json.loads(call.arguments)) for call in whole.calls] == list(transcript.calls)
    assert all(call.closed for call in whole.calls)
    assert read(transcript.parser(), transcript.text) == whole
    for cut in range(1, len(transcript.text)):
        assert read(transcript.parser(), [transcript.text[:cut], transcript.text[cut:]]) == whole

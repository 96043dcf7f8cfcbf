"""Counting the tokens of a streamed answer whose server does not report them."""

import json
import re
from pathlib import Path

import openvino_genai

_EVENT = re.compile(rb"data: (\{.*\})")


class TokenCounter:
    """Counts as the model's own tokenizer does: an answer's text, taken to pieces again."""

    def __init__(self, model: Path) -> None:
        self._tokenizer = openvino_genai.Tokenizer(str(model))

    def count(self, raw: bytes) -> int:
        """Return the tokens of the text in a stream, given as it came, with HTTP's framing between the events."""
        return len(self._tokenizer.encode(text_of(raw), add_special_tokens=False).input_ids.data[0])


def text_of(raw: bytes) -> str:
    """Return the text of a stream of one choice."""
    events = [json.loads(event) for event in _EVENT.findall(raw)]
    return "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])

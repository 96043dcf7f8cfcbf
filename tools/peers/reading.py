"""What our parsers read, in the form in which other servers' tests compare it."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from shared.parsers import CallArguments, CallClosed, CallOpened, Content, Reasoning, parser_for
from shared.parsers.formats import AUTO, NONE, PARSERS, OutputFormat, ParserKind
from shared.protocol.request import Tool


class Text(str):
    """A text that equals another but for white space around it, which belongs to the format."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.strip() == other.strip()

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


class Read(NamedTuple):
    """A whole text, read: calls are names and JSON texts."""

    content: str
    reasoning: str
    calls: Sequence[tuple[str, str]]


_MODULES = {
    "cohere_command": "cohere",
    "granite_20b_fc": "granite_20b",
    "hermes": "hermes",
    "hy_v3": "hunyuan",
    "internlm2": "internlm",
    "llama": "llama3_json",
    "minicpm5xml": "minicpm5",
    "phi4mini": "phi4",
    "poolside_v1": "glm47",
}
"""Modules of vLLM that have other names than its parsers."""


def named(kind: ParserKind, name: str) -> str | None:
    """Return our format for the name of a parser, or of its module; None if there is none."""
    plain = {known.replace("_", ""): meaning for known, meaning in PARSERS[kind].items()}
    found = plain.get(_MODULES.get(name, name).replace("_moe", "").replace("_", ""))
    return None if found in (AUTO, NONE) else found


def read(
    text: str | Sequence[str], tools: str, reasoning: str, offered: Sequence[Tool], *, opened: bool, whole: bool = True
) -> Read:
    """Return what a model wrote, perhaps in chunks; formats are named as the other server names its parsers.

    ``opened``: the prompt ends inside reasoning, which the tests do not say. ``whole``: calls that are cut are none.
    """
    output = OutputFormat(tools=named("tool_parser", tools), reasoning=named("reasoning_parser", reasoning))
    parser = parser_for(output, offered, in_reasoning=opened and output.reasoning is not None)
    if parser is None:
        return Read("".join(text), "", [])
    chunks = [text] if isinstance(text, str) else text
    parts = [*(part for chunk in chunks for part in parser.feed(chunk)), *parser.finish(cut=not whole)]
    names = {part.index: part.name for part in parts if isinstance(part, CallOpened)}
    arguments = dict.fromkeys(names, "")
    for part in parts:
        if isinstance(part, CallArguments):
            arguments[part.index] += part.text
    return Read(
        Text("".join(part.text for part in parts if isinstance(part, Content))),
        Text("".join(part.text for part in parts if isinstance(part, Reasoning))),
        [
            (names[part.index], arguments[part.index])
            for part in parts
            if isinstance(part, CallClosed if whole else CallOpened)
        ],
    )


def same_json(one: str, other: str) -> bool:
    """Whether two texts are the same JSON."""
    try:
        left: Any = json.loads(one or "{}")
        return bool(left == json.loads(other or "{}"))
    except ValueError:
        return one == other

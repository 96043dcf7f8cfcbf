"""OpenVINO Model Server's tests of streams, and those of gpt-oss, whose texts are made of tokens."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from shared.protocol.request import Tool
from tools.peers.literals import literals, text_of
from tools.peers.reading import Read, read, same_json

_FINISH = r"(?:ov\s?::genai\s?::GenerationFinishReason\s?::\w+\s*,\s*)?"
_ENTRY = re.compile(
    rf"\{{\s*(?P<chunk>{literals('a')}),\s*{_FINISH}(?:(?P<none>std::nullopt)|\{{?(?P<delta>{literals('b')})\}}?|"
    r"expectedArgsDelta\((?P<index>\d+), (?P<variable>\w+)\))\s*\}",
    re.DOTALL,
)
_VECTOR = re.compile(r"\b(?:chunkToDeltaVec|chunks)\{\n(.*?\}),?\s*(?://[^\n]*\n\s*)*\};\n", re.DOTALL)
_VARIABLE = re.compile(rf"std::string (?P<name>\w+) = (?P<text>{literals('g')});", re.DOTALL)
_LAST = re.compile(r"Copy\.push_back\((.*?)\);\n", re.DOTALL)
_LOOP = re.compile(r"for \(auto (\w+) : std::vector<[\w:]+>\{(.*?)\}\)", re.DOTALL)
_ADDED = re.compile(rf"\.add\((?:Harmony::TokenID::(?P<token>\w+)|(?P<text>{literals('c')})|(?P<name>\w+))\)")
_END = re.compile(r"</?s>|<\|im_end\|>|<turn\|>|<\|tool_response>|<\|eot_id\|>")
"""Tokens that are no part of a text."""
_COMMENT = re.compile(r"(?<=\s)//[^\n]*")
_RIGHT = re.compile(
    r"getContent\(\), (?P<content>"
    + literals("d")
    + r")|getReasoning\(\), (?P<reasoning>"
    + literals("e")
    + r")|getToolCalls\(\)\[\d+\]\.(?P<field>\w+), (?P<value>"
    + literals("f")
    + ")",
    re.DOTALL,
)


def streams(name: str, body: str, parsers: tuple[str, str], tools: Sequence[Tool]) -> Iterator[tuple[str, str]]:
    """Yield the problems of a test that feeds chunks, empty if there is none."""
    vector = _VECTOR.search(body)
    if vector is None:
        return
    texts = {found["name"]: found["text"] for found in _VARIABLE.finditer(body, 0, vector.start())}
    given = re.sub(r"\+ (\w+) \+", lambda found: texts.get(found[1], found[0]), vector[1])
    entries = list(_ENTRY.finditer(given))
    offered = [] if re.search(r"parseChunk\([\w\[\].]+, \{?\w*\}?, false", body) else tools
    lasts = [_ENTRY.search(found[1]) for found in _LAST.finditer(body)]
    for number, last in enumerate(lasts or [None]):
        chosen = [*entries, *filter(None, [last])]
        chunks = [_END.sub("", text_of(one["chunk"])) for one in chosen]
        right = _sum([_delta(one, texts) for one in chosen if not one["none"]])
        problems = [
            next(_problems(read(chunks, *parsers, offered, opened=opened, whole=False), right), "")
            for opened in (False, True)
        ]
        yield f"{name} {number}", problems[0] and problems[1] and problems[0]


def harmony(name: str, body: str) -> Iterator[tuple[str, str]]:
    """Yield the problems of a test of gpt-oss, one for each combination of the values in its loops."""
    body = _COMMENT.sub("", body)
    loops = [(found[1], [text_of(one) or one for one in _items(found[2])]) for found in _LOOP.finditer(body)]
    right = Read("", "", [])
    fields: list[str] = []
    for found in _RIGHT.finditer(body):
        if found["content"]:
            right = right._replace(content=text_of(found["content"]))
        elif found["reasoning"]:
            right = right._replace(reasoning=text_of(found["reasoning"]))
        else:
            fields.append(text_of(found["value"]))
    right = right._replace(calls=list(zip(fields[::2], fields[1::2], strict=True)))
    for number, values in enumerate(product(*(values for _, values in loops))):
        variables = dict(zip((variable for variable, _ in loops), values, strict=True))
        text = ""
        for added in _ADDED.finditer(body):
            written = variables.get(added["name"] or "", added["text"] or "")
            token = added["token"] or (written[len("Harmony::TokenID::") :] if "TokenID" in written else "")
            text += f"<|{token.lower()}|>" if token else text_of(written) if added["text"] else written
        offered = [Tool(name=called) for called in ("hello", "goodbye")]
        found_parts = read(text, "gptoss", "gptoss", offered, opened=False)
        yield f"{name} {number}", next(_problems(found_parts, right), "")


def _items(text: str) -> list[str]:
    return re.findall(r'Harmony::TokenID::\w+|"(?:[^"\\]|\\.)*"', text)


def _delta(entry: re.Match[str], texts: Mapping[str, str]) -> Any:
    """Return the delta after a chunk; some are made by a function of an index and the value of the only argument."""
    if entry["index"]:
        arguments = json.dumps({"arg1": text_of(texts[entry["variable"]])})
        return {"tool_calls": [{"index": int(entry["index"]), "function": {"arguments": arguments}}]}
    return json.loads(text_of(entry["delta"]))["delta"]


def _sum(deltas: Sequence[dict[str, Any]]) -> Read:
    calls: dict[int, list[str]] = {}
    for delta in deltas:
        for call in delta.get("tool_calls", []):
            pair = calls.setdefault(call["index"], ["", ""])
            pair[0] += call["function"].get("name", "")
            pair[1] += call["function"].get("arguments", "")
    content, reasoning = ("".join(one.get(key, "") for one in deltas) for key in ("content", "reasoning_content"))
    return Read(content, reasoning, [(pair[0], pair[1]) for pair in calls.values()])


def _problems(found: Read, right: Read) -> Iterator[str]:
    for what in ("content", "reasoning"):
        got, expected = (_plain(getattr(one, what)) for one in (found, right))
        if got != expected:
            yield f"{what} is {got!r}, not {expected!r}"
    if [name for name, _ in found.calls] != [name for name, _ in right.calls]:
        yield f"calls are {found.calls}, not {right.calls}"
    for (name, got), (_, expected) in zip(found.calls, right.calls, strict=False):
        short, long = sorted((_plain(got), _plain(expected)), key=len)
        # A test may end before the call does, and its parser is one chunk late.
        if not (same_json(got, expected) or (name == found.calls[-1][0] and long.startswith(short))):
            yield f"arguments are {got!r}, not {expected!r}"


def _plain(text: str) -> str:
    return "".join(text.split())

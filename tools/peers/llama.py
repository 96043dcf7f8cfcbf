"""llama.cpp's tests of parsers: what its builders are given, read with the format that each chat template shows."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

from shared.parsers.formats import MARKERS
from shared.protocol.request import ChatRequest, Message, Tool
from tools.peers.literals import literals, text_of
from tools.peers.reading import Read, read, same_json
from worker.prompt.conversation import render
from worker.prompt.facts import TemplateFacts
from worker.prompt.probe import probe
from worker.prompt.template import ChatTemplate

_literal = re.compile(literals("d"), re.DOTALL)
_message = re.compile(r"common_chat_msg (\w+)\s*=\s*(\w+\(.*?\));\n", re.DOTALL)
_tool = re.compile(r"common_chat_tool (\w+)\{(.*?)\n\};", re.DOTALL)
_string = re.compile(r"std::string (\w+)\s*=\s*(" + literals("d") + r");", re.DOTALL)
_step = re.compile(r"peg_tester\(\"(?P<template>[^\"]+)\"|tst\.test\((?P<case>.*?)\.\s*run\(\);", re.DOTALL)
_method = re.compile(r"\.\s*(\w+)\(")
_call = re.compile(rf"\{{\s*(?P<name>{literals('a')}),\s*(?P<arguments>{literals('b')})", re.DOTALL)
_comment = re.compile(r"/\*.*?\*/|(?<=\s)// .*")
_OTHERS = {"is_partial", "continue_final_message", "json_schema", "add_generation_prompt"}
"""What a test is about if it calls these."""
_FUNCTIONS = {
    "simple_assist_msg": "content reasoning name arguments",
    "message_with_tool_calls": "name arguments",
    "message_with_tool_calls_and_reasoning": "name arguments reasoning",
    "message_with_content_and_tool_call": "content name arguments",
    "message_with_reasoning_and_tool_call": "reasoning name arguments",
    "message_with_reasoning_content_and_multiple_tool_calls": "reasoning content",
}
"""Functions that make a message, with the meaning of their arguments."""


def replay(folder: Path) -> Mapping[str, Mapping[str, str]]:
    """Return the problem of each case, empty if there is none, by the template."""
    source = _comment.sub("", (folder / "tests/test-chat.cpp").read_text("utf-8"))
    messages = dict(_message.findall(source))
    tools = {name: _strings(text) for name, text in _tool.findall(source)}
    results: dict[str, dict[str, str]] = defaultdict(dict)
    template = folder
    for step in _step.finditer(source):
        if step["template"]:
            template = folder / step["template"]
            continue
        texts = {found[1]: found[2] for found in _string.finditer(source, 0, step.start())}
        case = re.sub(r"\+\s*(\w+)", lambda found, texts=texts: texts.get(found[1], found[0]), step["case"])
        given = {name: texts.get(text, text) for name, text in _arguments(case)}
        reads = "reasoning_format" in given and "NONE" not in given["reasoning_format"]
        right = _right(given, messages)
        if (
            given.keys() & _OTHERS
            or not template.is_file()
            or not _strings(given[""])
            or not (reads or "tools" in given)
        ):
            continue
        offered = [
            Tool(name=tool[0], parameters=tool[2])
            for name, tool in tools.items()
            if re.search(rf"\b{name}\b", given.get("tools", ""))
        ] or [Tool(name=name) for name, _ in right.calls]
        line = source.count("\n", 0, step.start())
        results[template.stem][f"line {line}"] = _problem(template, given, offered, right)
    return results


def _strings(text: str) -> list[str]:
    return [text_of(found[0]) for found in _literal.finditer(text)]


def _arguments(case: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the arguments of each method; the text comes first, without a name."""
    hidden = _literal.sub(lambda found: "\0" * len(found[0]), case)
    starts = [("", 0, 0), *((found[1], found.start(), found.end()) for found in _method.finditer(hidden))]
    for (name, _, begin), (_, end, _) in pairwise([*starts, ("", len(case), 0)]):
        yield name, case[begin:end].strip().removesuffix(")").strip()


def _right(given: Mapping[str, str], messages: Mapping[str, str]) -> Read:
    """Return what a test expects."""
    whole = given.get("expect", "")
    whole = messages.get(whole, whole)
    parts = dict(zip(_FUNCTIONS.get(whole.partition("(")[0], "").split(), _strings(whole), strict=False))
    calls = [
        (text_of(found["name"]), text_of(found["arguments"]))
        for found in _call.finditer(given.get("expect_tool_calls", whole))
    ]
    if "name" in parts:
        calls = [(parts["name"], parts.get("arguments", ""))]
    return Read(
        "".join(_strings(given.get("expect_content", ""))) or parts.get("content", ""),
        "".join(_strings(given.get("expect_reasoning", ""))) or parts.get("reasoning", ""),
        calls,
    )


def _problem(template: Path, given: Mapping[str, str], offered: list[Tool], right: Read) -> str:
    chat, facts = _probed(template)
    if offered and right.calls and facts.tools_as_text:
        return "tools are text"
    request = ChatRequest(
        model="",
        messages=(Message(role="user", content="Hey"),),
        tools=tuple(offered),
        template_kwargs=json.dumps({"enable_thinking": "false" not in given.get("enable_thinking", "")}),
    )
    opened = facts.output.opens_reasoning(render(chat, request, facts))
    text = "".join(_strings(given[""]))
    found = read(text, facts.output.tools or "none", facts.output.reasoning or "none", offered, opened=opened)
    names = [name for name, _ in found.calls] == [name for name, _ in right.calls]
    if not names or not all(
        same_json(one, other) for (_, one), (_, other) in zip(found.calls, right.calls, strict=True)
    ):
        return f"calls are {found.calls}, not {right.calls}; content {found.content!r}"
    for what, got, expected in (
        ("content", found.content, right.content),
        ("reasoning", found.reasoning, right.reasoning),
    ):
        if got.strip() != expected.strip():
            return f"{what} is {got!r}, not {expected!r}"
    return ""


@cache
def _probed(template: Path) -> tuple[ChatTemplate, TemplateFacts]:
    source = template.read_text("utf-8")
    chat = ChatTemplate(source, bos_token="<s>", eos_token="</s>")
    return chat, probe(chat, [marker for marker in MARKERS if marker in source])

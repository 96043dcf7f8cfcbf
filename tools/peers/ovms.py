"""OpenVINO Model Server's tests of parsers: texts, and what is expected of them."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from shared.protocol.request import Tool
from tools.peers.literals import literals, text_of
from tools.peers.ovms_streams import harmony, streams
from tools.peers.reading import Read, read, same_json

_INPUT = re.compile(
    r"(?:std::string \w*[iI]nput\w*\s*=|generateParsedOutput\()\s*(?P<text>" + literals("d") + r")[;)]",
    re.DOTALL,
)
_VARIABLE = re.compile(r"std::string (?P<name>\w+) = (?P<text>" + literals("d") + r");")
_EXPECTED = re.compile(
    r"EXPECT_EQ\(\s*parsed\w*\.(?P<what>content|reasoning|toolCalls\[(?P<index>\d+)\]\.(?P<field>name|arguments)),"
    r"\s*(?P<text>" + literals("d") + r")\)",
    re.DOTALL,
)
_PARSERS = re.compile(r'OutputParser>\(\*\w+, "(\w*)", "(\w*)"')
_TEST = re.compile(r"^TEST_F\(\w+, (\w+)\) \{\n(.*?)^\}\n(?=\n|\Z|TEST|//|#)", re.MULTILINE | re.DOTALL)
_COUNT = re.compile(r"ASSERT_EQ\(\s*parsed\w*\.toolCalls\.size\(\), (\d+)\)")
_SCHEMA = re.compile(r'\{"(\w+)",\s*R"\((\{.*?\})\)"\}', re.DOTALL)
_WITHOUT_TOOLS = re.compile(r"(?:Tokens|input), false\)")
_END = re.compile(r"</s>|<\|im_end\|>|<\|eot_id\|>$")
"""The end token, which is no part of a text."""


def replay(folder: Path) -> Mapping[str, Mapping[str, str]]:
    """Return the problem of each case, empty if there is none, by the tests' file."""
    files = sorted((folder / "src/test/llm/output_parsers").glob("*_output_parser_test.cpp"))
    return {file.name.removesuffix("_output_parser_test.cpp"): dict(_cases(file.read_text("utf-8"))) for file in files}


def _cases(source: str) -> Iterator[tuple[str, str]]:
    parsers = _PARSERS.search(source)
    if parsers is None:
        return
    schemas = dict(_SCHEMA.findall(source))
    for name, body in _TEST.findall(source):
        for variable in _VARIABLE.finditer(body):
            body = body.replace(f"+ {variable['name']} +", variable["text"])
        if "TokenBuilder" in source:
            yield from harmony(name, body)
        offered = [Tool(name=tool, parameters=schemas.get(tool)) for tool in {**_called(body), **schemas}]
        yield from streams(name, body, (parsers[1], parsers[2]), offered or [Tool(name="none")])
        expected = list(_EXPECTED.finditer(body))
        if not expected or _WITHOUT_TOOLS.search(body):
            continue
        count = _COUNT.search(body)
        called = dict.fromkeys(text_of(one["text"]) for one in expected if one["field"] == "name")
        tools = [Tool(name=tool, parameters=schemas.get(tool)) for tool in {**called, **schemas}]
        for number, found in enumerate(_INPUT.finditer(body)):
            text = _END.sub("", text_of(found["text"]))
            problems = [
                next(
                    _problems(
                        read(text, parsers[1], parsers[2], tools or [Tool(name="none")], opened=opened),
                        expected,
                        int(count[1]) if count else None,
                    ),
                    "",
                )
                for opened in (False, True)
            ]
            yield f"{name} {number}", problems[0] and problems[1] and problems[0]


def _called(body: str) -> dict[str, None]:
    """Return the names of the calls in expected deltas."""
    return dict.fromkeys(re.findall(r'\{\\?"name\\?":\\?"(\w+)', body))


def _problems(found: Read, expected: list[re.Match[str]], count: int | None) -> Iterator[str]:
    if count is not None and len(found.calls) != count:
        yield f"{len(found.calls)} calls, not {count}; content {found.content!r}"
    for one in expected:
        right = text_of(one["text"])
        if one["index"] is None:
            got = found.content if one["what"] == "content" else found.reasoning
        elif int(one["index"]) < len(found.calls):
            got = found.calls[int(one["index"])][one["field"] == "arguments"]
        else:
            yield f"no call {one['index']}; content {found.content!r}"
            continue
        if not (same_json(got, right) if one["field"] == "arguments" else got == right):
            yield f"{one['what']} is {got!r}, not {right!r}"

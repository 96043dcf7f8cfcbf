"""Replays the outputs of models that the package canitoolcall has through the parsers, and compares what they find.

``python -m bench.fidelity.call_fixtures FOLDER``, the folder ``canitoolcall/_data/fixtures`` of its wheel.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from api.parsers import CallArguments, CallClosed, CallOpened, Content, Reasoning, parser_for
from bench.report import table
from shared.protocol.formats import OutputFormat
from shared.protocol.request import Tool

Fixture = dict[str, Any]
Outcome = tuple[str, str, list[tuple[str, Any]]]
"""Content, reasoning, and the names and arguments of complete calls."""

_FORMATS = {
    "deepseek": OutputFormat(tools="deepseek_v3", reasoning="think"),
    "gpt-oss": OutputFormat(tools="harmony", reasoning="harmony"),
    "llama": OutputFormat(tools="llama3_json"),
    "mistral": OutputFormat(tools="mistral_args", reasoning="mistral"),
    "qwen3-hermes": OutputFormat(tools="hermes", reasoning="think"),
    "qwen3-xml": OutputFormat(tools="qwen3_coder", reasoning="think"),
}


def main(folder: Path) -> None:
    """Print how many fixtures of each family give what they should, and the names of the others."""
    counts: Counter[tuple[str, str]] = Counter()
    for fixture, prompt in _fixtures(folder):
        output = _format(fixture)
        if output is None:
            counts[fixture["family"], "format not supported"] += 1
            continue
        text = fixture["raw_output"]
        right = all(_is_right(fixture, _parsed(fixture, output, prompt, pieces)) for pieces in ([text], list(text)))
        counts[fixture["family"], "as expected" if right else "different"] += 1
        if not right:
            print(f"different: {fixture['id']}")
    kinds = ("as expected", "different", "format not supported")
    rows = [
        {"family": family, **{kind: counts[family, kind] for kind in kinds}}
        for family in sorted({family for family, _ in counts})
    ]
    print(table("fixtures of canitoolcall, whole and a character at a time", rows))


def _fixtures(folder: Path) -> Iterator[tuple[Fixture, str]]:
    """Yield the fixtures, each with the end of its prompt."""
    for described in sorted(folder.glob("*/family.json")):
        models = json.loads(described.read_text())["reference_models"]
        prompts = {model["repo"]: model.get("default_generation_prompt") for model in models}
        for file in sorted(described.parent.glob("*.jsonl")):
            for line in file.read_text().splitlines():
                fixture = json.loads(line)
                own = fixture.get("generation_prompt")
                yield fixture, (prompts.get(fixture["models"][0]) if own is None else own) or ""


def _format(fixture: Fixture) -> OutputFormat | None:
    model = fixture["models"][0].lower()
    match fixture["family"]:
        case "llama" if "llama-4" in model or "3.2" in model:
            return OutputFormat(tools="llama_pythonic")
        case "deepseek" if "v3.2" in model or "v4" in model:
            return None
        case "deepseek" if "v3.1" in model:
            return OutputFormat(tools="deepseek_v31", reasoning="think")
    return _FORMATS.get(fixture["family"])


def _parsed(fixture: Fixture, output: OutputFormat, prompt: str, pieces: list[str]) -> Outcome:
    functions = [tool["function"] for tool in fixture["tools"]]
    tools = [Tool(name=one["name"], parameters=json.dumps(one.get("parameters", {}))) for one in functions]
    harmony = output.tools == "harmony"
    parser = parser_for(output, tools, in_reasoning=not harmony and output.opens_reasoning(prompt))
    if parser is None:
        return "".join(pieces), "", []
    content = reasoning = ""
    calls: list[list[Any]] = []
    parts = [part for piece in pieces for part in parser.feed(piece)]
    for part in (*parts, *parser.finish(cut="truncated" in fixture["tags"])):
        match part:
            case Content(text):
                content += text
            case Reasoning(text):
                reasoning += text
            case CallOpened(_, _, name):
                calls.append([name, "", False])
            case CallArguments(_, text):
                calls[-1][1] += text
            case CallClosed():
                calls[-1][2] = True
    return content.strip(), reasoning.strip(), [(name, json.loads(text)) for name, text, closed in calls if closed]


def _is_right(fixture: Fixture, found: Outcome) -> bool:
    """Whether the outcome is the expected one; a text that is no complete call must give none."""
    expected = fixture.get("expected")
    if expected is None:
        return not found[2]
    calls = [(call["name"], call["arguments"]) for call in expected["tool_calls"]]
    texts = (expected[field] or "" for field in ("content", "reasoning_content"))
    return found == (*(text.strip() for text in texts), calls)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

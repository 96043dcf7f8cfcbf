"""Chat templates in a folder: whether each shows tools, and writes calls in a format that is read."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from shared.parsers.formats import MARKERS
from worker.prompt.probe import probe
from worker.prompt.template import ChatTemplate


def replay(folder: Path) -> Mapping[str, Mapping[str, str]]:
    """Return the problem of each template that mentions tools, empty if there is none, by the format of its calls."""
    results: dict[str, dict[str, str]] = {}
    for file in sorted(folder.rglob("*.jinja")):
        source = file.read_text("utf-8")
        if "tool" not in source:
            continue
        facts = probe(
            ChatTemplate(source, bos_token="<s>", eos_token="</s>"), [one for one in MARKERS if one in source]
        )
        problem = "tools are text" if facts.tools_as_text else ""
        name = f"{file.relative_to(folder)} {sha256(source.encode()).hexdigest()[:12]}"
        results.setdefault(f"{facts.output.tools}, {facts.output.reasoning}", {})[name] = problem
    return results

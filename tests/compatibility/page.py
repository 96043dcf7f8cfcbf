"""The page ``docs/compatibility.md``."""

from collections.abc import Iterable, Iterator

from tests.compatibility.azure import AZURE
from tests.compatibility.named_tests import ROOT
from tests.compatibility.openai_chat import CHAT
from tests.compatibility.openai_completions import COMPLETIONS
from tests.compatibility.ovms import MODEL_SERVER
from tests.compatibility.ovms_completions import MODEL_SERVER_COMPLETIONS
from tests.compatibility.proof import refusal
from tests.compatibility.rows import Answer, Interface, Request
from tests.compatibility.samples import sent

PAGE = ROOT / "docs" / "compatibility.md"
INTERFACES = (CHAT, COMPLETIONS, MODEL_SERVER, MODEL_SERVER_COMPLETIONS, AZURE)

_HEAD = """# Compatibility

What this service does with each field of the interfaces that it speaks. Made by `make docs`; don't edit it by hand.

- What happens is not written by anybody. For requests it is what the interface's own parser did with a request that
  has the fields; where that was refused, the reason is the message that the client gets. For answers it is what
  was found in rendered answers. A unit test fails when this page is not what the code does.
- What the parser takes, the worker may still refuse by name before the answer begins, where its engine or model can't
  do it; the row says so.
- `[]` stands for each item of an array. Names that begin with `?` are in the query, those that end with `:` are
  headers.
- The last column names a test that is about one of the row's fields at least. That each field is read or refused as
  told here is shown by `unit/test_compatibility.py`.
- Whatever else a client sends is refused by name, in the interface's own form of an error; in Azure's, unless a header
  says otherwise.
"""


def page() -> str:
    """The whole page in Markdown."""
    return "\n".join((_HEAD, *(line for interface in INTERFACES for line in _section(interface))))


def _section(interface: Interface) -> Iterator[str]:
    yield f"## {interface.title}\n\n`{interface.route}`. {interface.about}\n"
    yield from _table("Field of the request", (_request(interface, row) for row in interface.requests))
    found = sent(interface)
    yield from _table("Field of the answer", (_answer(found, row) for row in interface.answers))


def _table(first: str, rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {first} | What happens | How, or why not | Shown by |\n|---|---|---|---|"
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
    yield ""


def _request(interface: Interface, row: Request) -> tuple[str, ...]:
    refused = refusal(interface, row)
    fields = _fields(row.paths) + (f" ({row.when})" if row.when else "")
    if refused is None:
        return fields, "served", row.how, _test(row.test)
    return fields, f"refused: {refused.status}", refused.message, _test(row.test)


def _answer(found: dict[str, list[object]], row: Answer) -> tuple[str, ...]:
    return _fields(row.paths), " or ".join(sorted({_sent(found, path) for path in row.paths})), row.how, _test(row.test)


def _sent(found: dict[str, list[object]], path: str) -> str:
    """Whether a field is sent; one that never carries anything is told with what it always is."""
    values = found.get(path)
    if values is None:
        return "never sent"
    if any(values):
        return "sent"
    return "sent, always " + {"None": "null", "[]": "empty", "": "empty", "0": "0"}[str(values[0])]


def _fields(paths: Iterable[str]) -> str:
    return "<br>".join(f"`{path}`" for path in paths)


def _test(node: str) -> str:
    return f"`{node.removeprefix('tests/')}`"

"""The table of docs/http-api.md, generated from the OpenAPI document.

``python -m tools.docs.http_table docs/http-api.md`` writes it.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from api.build import openapi_document
from tools.docs.generated import replaced, rewrite

BEGIN = "<!-- operations: generated -->\n"
END = "<!-- /operations -->\n"

_USUAL = ("200", "400", "421", "503")


def inserted(text: str) -> str:
    """``text`` of the page with the current table between its markers.

    Raises :class:`ValueError` when the markers are missing.
    """
    return replaced(text, BEGIN, END, table())


def table() -> str:
    """The table of all operations."""
    paths: dict[str, dict[str, Any]] = msgspec.json.decode(openapi_document())["paths"]
    rows = [row for path, operations in paths.items() for row in _rows(path, operations)]
    head = f"| Operation | What it does | Responses other than {', '.join(_USUAL)} |"
    return "\n".join([head, "|---|---|---|", *rows]) + "\n"


def _rows(path: str, operations: dict[str, Any]) -> Iterator[str]:
    for method, operation in operations.items():
        statuses = ", ".join(sorted(operation["responses"].keys() - _USUAL))
        yield f"| `{method.upper()} {path}` | {operation['summary'].rstrip('.')} | {statuses} |"


if __name__ == "__main__":
    rewrite(inserted)

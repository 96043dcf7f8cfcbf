"""The table of docs/http-api.md, generated from the OpenAPI document.

``python -m tools.docs.http_table docs/http-api.md`` writes it.
"""

from typing import Any

import msgspec

from api.build import openapi_document
from tools.docs.generated import replaced, rewrite

BEGIN = "<!-- operations: generated -->\n"
END = "<!-- /operations -->\n"


def inserted(text: str) -> str:
    """``text`` of the page with the current table between its markers.

    Raises :class:`ValueError` when the markers are missing.
    """
    return replaced(text, BEGIN, END, table())


def table() -> str:
    """The table of all operations. Those that differ in their paths only have one row; errors are in the document."""
    documented: dict[str, dict[str, Any]] = msgspec.json.decode(openapi_document())["paths"]
    rows: dict[tuple[str, str], list[str]] = {}
    for path, operations in documented.items():
        for method, operation in operations.items():
            rows.setdefault((method.upper(), operation["summary"].rstrip(".")), []).append(f"`{path}`")
    body = (f"| {method} {', '.join(paths)} | {what} |" for (method, what), paths in rows.items())
    return "\n".join(["| Operation | What it does |", "|---|---|", *body]) + "\n"


if __name__ == "__main__":
    rewrite(inserted)

"""The README's settings table, written from the settings classes: ``python -m cli.settings_table README.md``."""

import sys
from pathlib import Path

from cli.options import COMPUTED, flag, variable
from shared.settings import ApiSettings, Settings, UpSettings, WorkerSettings

BEGIN = "<!-- settings: made by 'make docs' from shared/settings.py -->"
END = "<!-- /settings -->"

COMMANDS: dict[str, type[Settings]] = {"api": ApiSettings, "worker": WorkerSettings, "up": UpSettings}


def table() -> str:
    """A Markdown table with one row for each setting, or for each meaning where a setting has several."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for command, kind in COMMANDS.items():
        for name, field in kind.model_fields.items():
            rows.setdefault((name, _default(kind, name), field.description or ""), []).append(command)
    lines = ["| Flag | Environment | Default | Used by | Meaning |", "|---|---|---|---|---|"]
    for (name, default, meaning), commands in sorted(rows.items(), key=lambda row: row[0][0]):
        lines.append(f"| `{flag(name)}` | `{variable(name)}` | {default} | {', '.join(commands)} | {meaning} |")
    return "\n".join(lines)


def inserted(page: str) -> str:
    """``page`` with the current table between its markers. Raises :class:`ValueError` when they are missing."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs the lines {BEGIN!r} and {END!r}")
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{tail}"


def _default(kind: type[Settings], name: str) -> str:
    field = kind.model_fields[name]
    if field.default_factory is not None:
        return COMPUTED
    if field.default == "":
        return "none"
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(inserted(path.read_text(encoding="utf-8")), encoding="utf-8")

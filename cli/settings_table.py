"""What is written from the settings classes: the README's settings table, and the variables that compose.yaml hands on.

``python -m cli.settings_table README.md compose.yaml`` writes both anew.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from cli.options import COMPUTED, file_variable, flag, variable
from shared.runtime.settings import SECRETS, ApiSettings, Settings, UpSettings, WorkerSettings

BEGIN = "<!-- settings: made by 'make docs' from shared/runtime/settings.py -->"
END = "<!-- /settings -->"

COMPOSE_BEGIN = "# settings: made by 'make docs' from shared/runtime/settings.py\n"
COMPOSE_END = "# /settings\n"

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


def passed_on() -> str:
    """YAML maps without values, for ``environment`` in compose.yaml: each variable is handed through if it is set."""
    lines = []
    for command in ("api", "worker"):
        kind = COMMANDS[command]
        variables = [variable(name) for name in kind.model_fields]
        variables += [file_variable(name) for name in SECRETS & kind.model_fields.keys()]
        lines += [f"x-{command}-settings: &{command}-settings", *(f"  {name}:" for name in sorted(variables))]
    return "\n".join(lines)


def inserted(page: str) -> str:
    """``page`` with the current table between its markers. Raises :class:`ValueError` when they are missing."""
    return _between(page, BEGIN, f"\n\n{table()}\n\n", END)


def inserted_into_compose(page: str) -> str:
    """The same for the variables in compose.yaml."""
    return _between(page, COMPOSE_BEGIN, f"{passed_on()}\n", COMPOSE_END)


def _between(page: str, begin: str, made: str, end: str) -> str:
    head, found_begin, rest = page.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not found_begin or not found_end:
        raise ValueError(f"the page needs the lines {begin!r} and {end!r}")
    return f"{head}{begin}{made}{end}{tail}"


def _default(kind: type[Settings], name: str) -> str:
    field = kind.model_fields[name]
    if field.default_factory is not None:
        return COMPUTED
    if field.default == "":
        return "none"
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        write: Callable[[str], str] = inserted if path.suffix == ".md" else inserted_into_compose
        path.write_text(write(path.read_text(encoding="utf-8")), encoding="utf-8")

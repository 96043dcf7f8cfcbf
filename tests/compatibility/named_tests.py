"""The tests that rows name: whether they are there, and what they are about."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


def source(node: str) -> str | None:
    """The text of the test with this pytest node id, and of what it uses of its own file; None if there is no test."""
    file, _, name = node.partition("::")
    definitions = _definitions(file) if (ROOT / file).is_file() else {}
    if not name.startswith("test_") or name not in definitions:
        return None
    taken: dict[str, str] = {}
    waiting = [name]
    while waiting:
        used = waiting.pop()
        if used in definitions and used not in taken:
            taken[used] = _text(file, used)
            waiting += _names(definitions[used])
    return "\n".join(taken.values())


@cache
def _definitions(file: str) -> dict[str, _Definition]:
    """What a file of the repository defines, by name."""
    found: dict[str, _Definition] = {}
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: node for target in targets if isinstance(target, ast.Name)}
    return found


@cache
def _text(file: str, name: str) -> str:
    return ast.unparse(_definitions(file)[name])


def _names(definition: ast.AST) -> Iterator[str]:
    """The names in a definition; those of parameters may be fixtures."""
    for node in ast.walk(definition):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg

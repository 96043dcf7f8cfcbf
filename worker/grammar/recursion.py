"""Unproductive rules of a grammar: they match no text, because each of their alternatives contains such a rule again.

XGrammar accepts them. Where one begins with itself, no token is allowed, and then the pipeline allows all of them.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Set

_TOKEN = re.compile(
    r'(?P<skipped>\s+|#[^\n]*|"(?:[^"\\\n]|\\.)*"|\[(?:[^\]\\\n]|\\.)*\]|\+|\{\s*[1-9][^}]*\})|(?P<rule>[\w.-]+)\s*::='
    r"|(?P<name>[\w.-]+)|(?P<optional>[*?]|\{\s*0[^}]*\})|(?P<sign>[|()])|(?P<other>.)",
    re.DOTALL,
)
_ROOT = "root"
_GROUP = "("
"""Begins the name of a group, which is treated like a rule."""


def unproductive_rule(ebnf: str) -> str | None:
    """Return the name of a rule that matches no text, and that the root rule of an EBNF grammar uses.

    None if there is none, or if the grammar can't be read.
    """
    rules = _rules(ebnf)
    users: dict[str, list[tuple[str, list[str]]]] = defaultdict(list)
    waiting = []
    for name, alternatives in rules.items():
        for parts in alternatives:
            missing = [part for part in parts if part in rules]
            for part in missing:
                users[part].append((name, missing))
            if not missing:
                waiting.append(name)
    unproductive = set(rules)
    while waiting:
        if (part := waiting.pop()) not in unproductive:
            continue
        unproductive.remove(part)
        for name, missing in users.pop(part, ()):
            missing.pop()  # any one: only their number matters
            if not missing:
                waiting.append(name)
    used, waiting = {_ROOT}, [_ROOT]
    while waiting:
        name = waiting.pop()
        if name in unproductive:
            return _repeated(name, rules, unproductive)
        fresh = {part for parts in rules.get(name, ()) for part in parts} - used
        used |= fresh
        waiting += fresh
    return None


def _repeated(name: str, rules: Mapping[str, list[list[str]]], unproductive: Set[str]) -> str:
    """Return a rule that contains itself, of those that the rule ``name`` matches no text without."""
    seen = set()
    while name not in seen or name.startswith(_GROUP):
        seen.add(name)
        name = next(part for parts in rules[name] for part in parts if part in unproductive)
    return name


def _rules(ebnf: str) -> dict[str, list[list[str]]]:
    """Return the rules and groups in each alternative of each rule and group; none if the grammar can't be read."""
    rules: dict[str, list[list[str]]] = {"": [[]]}
    around = [""]
    before = ""
    for found in _TOKEN.finditer(ebnf):
        parts = rules[around[-1]][-1]
        match found.lastgroup, found[0]:
            case "rule", _:
                around = [found["rule"]]
                rules.setdefault(around[0], []).append([])
            case "name", name:
                parts.append(name)
            case "optional", _ if before in ("name", ")"):
                rules[f"{_GROUP}{len(rules)}"] = [[parts.pop()], []]
                parts.append(next(reversed(rules)))
            case "sign", "(":
                around.append(f"{_GROUP}{len(rules)}")
                parts.append(around[-1])
                rules[around[-1]] = [[]]
            case "sign", "|":
                rules[around[-1]].append([])
            case "sign", ")" if len(around) > 1:
                around.pop()
            case (("sign" | "other"), _):
                return {}
        if found.lastgroup != "skipped" or not found[0].isspace():
            before = found[0] if found.lastgroup == "sign" else found.lastgroup or ""
    return rules

"""Which texts a grammar makes: a small reader of EBNF that turns it into a regular expression."""

import re

from worker.grammar.schema import schema_grammar

_TOKEN = re.compile(
    r'\s*("(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[A-Za-z_][A-Za-z0-9_]*|\{[0-9]+,?[0-9]*\}|[()|*+?])', re.DOTALL
)
_DEEPEST = 3
"""How often a rule may be within itself; beyond, it matches nothing."""


class Texts:
    """The texts of one grammar: ``text in Texts(ebnf)``."""

    def __init__(self, ebnf: str) -> None:
        lines = [line.partition(" ::= ") for line in ebnf.splitlines() if line]
        self._rules = {name: body for name, _, body in lines}
        self._open: list[str] = []
        self._done: dict[str, str] = {}
        self._pattern = re.compile(self._rule("root"), re.DOTALL)

    def __contains__(self, text: str) -> bool:
        return self._pattern.fullmatch(text) is not None

    def _rule(self, name: str) -> str:
        if name in self._done:
            return self._done[name]
        if self._open.count(name) >= _DEEPEST:
            return "(?!)"
        self._open.append(name)
        body = f"(?:{self._translated(self._rules[name])})"
        self._open.pop()
        if not self._open or name not in body:
            self._remember(name, body)
        return body

    def _remember(self, name: str, body: str) -> None:
        if not any(opened in self._reached(name) for opened in self._open):
            self._done[name] = body

    def _reached(self, name: str) -> set[str]:
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            for found in re.findall(r"\br[0-9]+\b", re.sub(r'"(?:[^"\\]|\\.)*"', "", self._rules[waiting.pop()])):
                if found not in seen:
                    seen.add(found)
                    waiting.append(found)
        return seen

    def _translated(self, body: str) -> str:
        parts: list[str] = []
        at = 0
        while body[at:].strip():
            found = _TOKEN.match(body, at)
            assert found, f"no EBNF: {body[at:]}"
            at = found.end()
            token = found[1]
            if token.startswith('"'):
                parts.append(f"(?:{re.escape(_unescaped(token[1:-1]))})")
            elif token[0] in "[{()|*+?":
                parts.append("(?:" if token == "(" else token)
            else:
                parts.append(self._rule(token))
        return "".join(parts)


def texts_of(schema: str, *, strict: bool = True) -> Texts:
    """The texts of a schema's grammar."""
    return Texts(schema_grammar(schema, strict=strict))


def _unescaped(text: str) -> str:
    named = {"n": "\n", "r": "\r", "t": "\t"}
    return re.sub(
        r"\\(u[0-9a-f]{4}|U[0-9a-f]{8}|.)",
        lambda found: chr(int(found[1][1:], 16)) if len(found[1]) > 1 else named.get(found[1], found[1]),
        text,
    )

"""Keeps XGrammar from accepting more than a grammar's alternatives.

XGrammar merges the common prefixes and suffixes of alternatives, and merges too much where several overlap
(https://github.com/mlc-ai/xgrammar/issues/618): ``"bbaa" | "bba" | "a" | "baa"`` also accepts ``baaa``. Alternatives
have no common suffix if each ends with a different empty rule.
"""

import re
from itertools import count

_PART = re.compile(r'#[^\n]*|"(?:[^"\\\n]|\\.)*"|\[(?:[^\]\\\n]|\\.)*\]|::=|\|', re.DOTALL)


def protect_alternatives(ebnf: str) -> str:
    """Return an equivalent of ``ebnf`` whose alternatives XGrammar does not merge."""
    numbers = count()
    rules = 0

    def rewritten(part: re.Match[str]) -> str:
        nonlocal numbers, rules
        if part[0] == "::=":
            numbers = count()
        if part[0] != "|":
            return part[0]
        number = next(numbers)
        rules = max(rules, number + 1)
        return f"end_{number} |"

    text = _PART.sub(rewritten, ebnf)
    return (
        "\n".join([text.rstrip("\n"), *(f'end_{number} ::= ""' for number in range(rules))]) + "\n" if rules else ebnf
    )

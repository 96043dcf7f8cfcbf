"""Keeps XGrammar from accepting more than a grammar's alternatives.

XGrammar merges the common prefixes and suffixes of alternatives, and merges too much where several overlap
(https://github.com/mlc-ai/xgrammar/issues/618): ``"bbaa" | "bba" | "a" | "baa"`` also accepts ``baaa``. No suffix is
common if each alternative ends with an empty rule of its own.
"""

import re
from itertools import count

_PART = re.compile(r'#[^\n]*|"(?:[^"\\\n]|\\.)*"|\[(?:[^\]\\\n]|\\.)*\]|::=|\|', re.DOTALL)


def kept_apart(ebnf: str) -> str:
    """Return ``ebnf`` with alternatives that XGrammar does not merge."""
    numbers = count()
    most = 0

    def rewritten(part: re.Match[str]) -> str:
        nonlocal numbers, most
        if part[0] == "::=":
            numbers = count()
        if part[0] != "|":
            return part[0]
        number = next(numbers)
        most = max(most, number + 1)
        return f"end_{number} |"

    text = _PART.sub(rewritten, ebnf)
    return "\n".join([text.rstrip("\n"), *(f'end_{number} ::= ""' for number in range(most))]) + "\n" if most else ebnf

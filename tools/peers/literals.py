"""String literals of C++, of which other servers' tests are made."""

import json
import re


def literals(group: str) -> str:
    """Return the pattern of adjacent literals, with ``group`` as the name of its group."""
    return rf'(?:(?:R"(?P<{group}>[^(\s]*)\(.*?\)(?P={group})"|"(?:[^"\\]|\\.)*")\s*)+'


def text_of(source: str) -> str:
    """Return the text of adjacent literals."""
    found = re.finditer(r'R"([^(\s]*)\((.*?)\)\1"|"((?:[^"\\]|\\.)*)"', source, re.DOTALL)
    return "".join(_unescaped(one[3]) if one[2] is None else one[2] for one in found)


def _unescaped(text: str) -> str:
    decoded: str = json.loads('"' + text.replace("\\'", "'") + '"', strict=False)
    return decoded

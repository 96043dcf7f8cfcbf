"""The inputs of custom tools, decoded from the arguments of their calls while these arrive.

For the model, a custom tool is a function with one string. Its arguments, ``{"input": "..."}``, become the text of that
string. Where no grammar has held the model to this form, the first member counts, whatever its name, and if that is no
string, the arguments are the input as they are.
"""

import re
from collections.abc import Container, Iterable, Iterator

import msgspec

from shared.parsers.parts import CallArguments, CallOpened, Part
from shared.parsers.source import NAME_LIMIT

_BEGIN = re.compile(r'\s*\{\s*(?:"(?:[^"\\]|\\.)*"\s*:\s*(\S)|\})', re.DOTALL)
_HIGH = r"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW = r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_NOT_LOW = r"(?=[^\\]|\\[^u]|\\u(?:[^dD]|[dD][^c-fC-F]))"
_WHOLE = re.compile(rf'(?:[^"\\]|\\[^u]|{_HIGH}(?:{_LOW}|{_NOT_LOW})|(?!{_HIGH})\\u[0-9a-fA-F]{{4}})*')
"""Characters and complete escapes. Half of a surrogate pair is complete once it is known what follows."""
_SURROGATES = re.compile(rf"(\\[^u])|({_HIGH}{_LOW})|{_HIGH}|{_LOW}")


class CustomInputs:
    """Decodes the calls of custom tools; other parts pass."""

    def __init__(self, names: Container[str]) -> None:
        """``names`` are those of the custom tools."""
        self._names = names
        self._input: _Input | None = None

    def decode(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Yield ``parts`` with the inputs of custom tools in place of their arguments."""
        for part in parts:
            match part:
                case CallOpened(name=name):
                    self._input = _Input() if name in self._names else None
                    yield part
                case CallArguments(index, text) if self._input is not None:
                    if piece := self._input.add(text):
                        yield CallArguments(index, piece)
                case _:
                    yield part


class _Input:
    """The input of one call."""

    def __init__(self) -> None:
        self._rest = ""
        """Text that is not decoded yet: what precedes the string, or an incomplete escape."""
        self._begun = False
        self._ended = False
        self._raw = False

    def add(self, text: str) -> str:
        """Return the part of the input that more text of the arguments completes."""
        if self._raw:
            return text
        self._rest += text
        if not self._begun and not self._begin():
            return ""
        if self._ended:
            return ""
        if self._raw:
            raw, self._rest = self._rest, ""
            return raw
        found = _WHOLE.match(self._rest)
        end = found.end() if found else 0
        piece, self._rest = self._rest[:end], self._rest[end:]
        self._ended = self._rest.startswith('"')
        return _decoded(piece)

    def _begin(self) -> bool:
        found = _BEGIN.match(self._rest)
        if found is None or found.end() > NAME_LIMIT:
            self._raw = self._begun = len(self._rest) > NAME_LIMIT
            return self._begun
        self._begun = True
        self._ended = found[1] is None
        self._raw = not self._ended and found[1] != '"'
        if not self._raw:
            self._rest = self._rest[found.end() :]
        return True


def _decoded(text: str) -> str:
    """Return the text of the content of a JSON string; half of a surrogate pair becomes U+FFFD."""
    try:
        return msgspec.json.decode(f'"{text}"', type=str)
    except msgspec.DecodeError:
        paired = _SURROGATES.sub(lambda found: found[1] or found[2] or "\ufffd", text)
        return msgspec.json.decode(f'"{paired}"', type=str)

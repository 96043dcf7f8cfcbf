"""Incremental JSON scanner."""

import re
from collections.abc import Callable

import msgspec

from shared.parsers.source import Malformed, Script, Source

_space = re.compile(r"[ \t\r\n]*")
_string_run = re.compile(r'[^"\\\x00-\x1f]*')
_number_run = re.compile(r"[-+.0-9eE]*")
_number = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
NUMBER_LIMIT = 1_000
"""Maximum length of a number in characters."""

_ESCAPES = frozenset('"\\/bfnrt')
_HEX = frozenset("0123456789abcdefABCDEF")
_CLOSERS = {"{": "}", "[": "]"}
_WORDS = ("true", "false", "null")

_State = Callable[[str, int], int]
"""A scanner state: consumes text from an index on, and returns the index of the first character not consumed."""


def quoted(text: str) -> str:
    """``text`` as a JSON string."""
    return msgspec.json.encode(text).decode()


class JsonScanner:
    """Scans one JSON value across chunks of text.

    It repairs two errors that models make often: raw control characters inside a string are escaped, and a
    backslash that escapes nothing is doubled. Any other invalid JSON is a failure. A bare number has no
    terminator, so it is never ``done``.
    """

    def __init__(self) -> None:
        self.done = False
        self.failed = False
        self._stack: list[str] = []
        self._output: list[str] = []
        self._token = ""
        self._key = False
        self._state: _State = self._value

    def scan(self, text: str, start: int) -> tuple[int, str]:
        """Scan ``text`` from ``start`` on; return the index of the first character not consumed, and the JSON output.

        Scanning stops when the value is complete (``done``) or the text is invalid (``failed``).
        """
        at = start
        while at < len(text) and not self.done and not self.failed:
            at = self._state(text, at)
        output = "".join(self._output)
        self._output.clear()
        return at, output

    def _copy(self, text: str, at: int, end: int) -> int:
        if end > at:
            self._output.append(text[at:end])
        return end

    def _blank(self, text: str, at: int) -> int:
        found = _space.match(text, at)
        return self._copy(text, at, found.end()) if found else at

    def _fail(self, at: int) -> int:
        self.failed = True
        return at

    def _value(self, text: str, at: int) -> int:
        at = self._blank(text, at)
        if at == len(text):
            return at
        first = text[at]
        if first in "{[":
            self._stack.append(first)
            self._state = self._first_key if first == "{" else self._first_item
        elif first == '"':
            self._key = False
            self._state = self._string
        elif first in "-0123456789":
            self._token = ""
            self._state = self._number
            return at
        elif first in "tfn":
            self._token = ""
            self._state = self._word
            return at
        else:
            return self._fail(at)
        return self._copy(text, at, at + 1)

    def _first_item(self, text: str, at: int) -> int:
        at = self._blank(text, at)
        if at < len(text):
            if text[at] == "]":
                return self._close(text, at)
            self._state = self._value
        return at

    def _first_key(self, text: str, at: int) -> int:
        at = self._blank(text, at)
        if at < len(text) and text[at] == "}":
            return self._close(text, at)
        return self._next_key(text, at)

    def _next_key(self, text: str, at: int) -> int:
        at = self._blank(text, at)
        if at == len(text):
            return at
        if text[at] != '"':
            return self._fail(at)
        self._key = True
        self._state = self._string
        return self._copy(text, at, at + 1)

    def _colon(self, text: str, at: int) -> int:
        at = self._blank(text, at)
        if at == len(text):
            return at
        if text[at] != ":":
            return self._fail(at)
        self._state = self._value
        return self._copy(text, at, at + 1)

    def _after_value(self, text: str, at: int) -> int:
        at = self._blank(text, at)
        if at == len(text):
            return at
        container = self._stack[-1]
        if text[at] == _CLOSERS[container]:
            return self._close(text, at)
        if text[at] != ",":
            return self._fail(at)
        self._state = self._next_key if container == "{" else self._value
        return self._copy(text, at, at + 1)

    def _close(self, text: str, at: int) -> int:
        self._stack.pop()
        self._end_value()
        return self._copy(text, at, at + 1)

    def _end_value(self) -> None:
        if self._stack:
            self._state = self._after_value
        else:
            self.done = True

    def _string(self, text: str, at: int) -> int:
        found = _string_run.match(text, at)
        at = self._copy(text, at, found.end()) if found else at
        if at == len(text):
            return at
        character = text[at]
        if character == "\\":
            self._state = self._escape
        elif character == '"':
            self._output.append('"')
            if self._key:
                self._state = self._colon
            else:
                self._end_value()
        else:
            self._output.append(quoted(character)[1:-1])
        return at + 1

    def _escape(self, text: str, at: int) -> int:
        character = text[at]
        if character == "u":
            self._token = ""
            self._state = self._hex
            self._output.append("\\u")
            return at + 1
        self._state = self._string
        if character in _ESCAPES:
            self._output.append("\\" + character)
            return at + 1
        self._output.append("\\\\")
        return at

    def _hex(self, text: str, at: int) -> int:
        if text[at] not in _HEX:
            return self._fail(at)
        self._token += text[at]
        if len(self._token) == 4:
            self._state = self._string
        return self._copy(text, at, at + 1)

    def _number(self, text: str, at: int) -> int:
        found = _number_run.match(text, at, at + NUMBER_LIMIT - len(self._token))
        end = found.end() if found else at
        self._token += text[at:end]
        self._copy(text, at, end)
        if end < len(text):
            if _number.fullmatch(self._token):
                self._end_value()
            else:
                self._fail(end)
        return end

    def _word(self, text: str, at: int) -> int:
        token = self._token + text[at]
        if not any(word.startswith(token) for word in _WORDS):
            return self._fail(at)
        self._token = token
        if token in _WORDS:
            self._end_value()
        return self._copy(text, at, at + 1)


def json_value(source: Source, emit: Callable[[str], None], *, before: str = "") -> Script[None]:
    """Read one JSON value and pass it to ``emit`` in chunks. ``before`` is its beginning, which was read already.

    Raises :class:`Malformed` at the first invalid character; the valid text before it has been emitted by then.
    """
    scanner = JsonScanner()
    emit(scanner.scan(before, 0)[1])
    while True:
        end, piece = scanner.scan(source.text, source.at)
        source.take(end)
        emit(piece)
        if scanner.done:
            return
        if scanner.failed or not (yield from source.more()):
            raise Malformed


def is_json_object(text: str) -> bool:
    """Whether ``text`` is exactly one JSON object, without surrounding whitespace."""
    scanner = JsonScanner()
    end, piece = scanner.scan(text, 0)
    return text.startswith("{") and scanner.done and end == len(text) and piece == text

"""Incremental scanner that converts a Python literal to JSON."""

import re
import sys
from collections.abc import Callable

from api.parsers.json_text import quoted
from api.parsers.scanner import Scanner
from api.parsers.source import Script, Source, read_value

_space = re.compile(r"[ \t\r\n]*")
_token_run = re.compile(r"[-+.\w]*")
_string_run = re.compile(r"[^\\'\"]+")
_json_number = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_whole_number = re.compile(r"[-+]?[0-9]+(?:_[0-9]+)*")
_decimal_number = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
TOKEN_LIMIT = 1_000
"""Maximum length of a number in characters. Below the digit limit of ``int``, beyond which it raises."""

_CLOSERS = {"{": "}", "[": "]", "(": ")"}
_JSON_BRACKETS = {"{": "{", "[": "[", "(": "[", "}": "}", "]": "]", ")": "]"}
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "\n": ""}
_HEX_LENGTHS = {"x": 2, "u": 4, "U": 8}
_HEX = frozenset("0123456789abcdefABCDEF")


class PythonScanner(Scanner):
    """Scans one Python literal across chunks of text and outputs it as JSON.

    Supports strings, numbers, ``True``, ``False``, ``None``, lists, tuples and dictionaries with string keys.
    Names, calls, operators and prefixed or concatenated strings are failures. Nothing is ever evaluated.
    """

    def __init__(self) -> None:
        super().__init__(self._value)
        self._quote = ""
        self._separator = ""
        self._hex_letter = ""

    def _blank(self, text: str, at: int) -> int:
        found = _space.match(text, at)
        return found.end() if found else at

    def _fail(self, at: int, held: str = "") -> int:
        """Set ``failed`` and output the text ``held`` back unchanged, so that nothing is lost."""
        self.failed = True
        self._emit(held)
        return at

    def _emit(self, text: str) -> None:
        self._output.append(self._separator + text)
        self._separator = ""

    def _value(self, text: str, at: int) -> int:
        """State before a value or the end of a list, or before a key or the end of a dictionary."""
        at = self._blank(text, at)
        if at == len(text):
            return at
        first = text[at]
        wants_key = bool(self._stack) and self._stack[-1] == "{" and not self._key
        may_close = bool(self._stack) and not self._key and first == _CLOSERS[self._stack[-1]]
        if may_close:
            return self._close(text, at)
        if first in "'\"":
            self._quote = first
            self._state = self._string
            self._emit('"')
            return at + 1
        if wants_key:
            return self._fail(at)
        if first in _CLOSERS:
            self._stack.append(first)
            self._key = False
            self._emit(_JSON_BRACKETS[first])
            return at + 1
        self._token = ""
        self._state = self._word
        return at

    def _close(self, text: str, at: int) -> int:
        self._stack.pop()
        self._separator = ""
        self._output.append(_JSON_BRACKETS[text[at]])
        self._end_value()
        return at + 1

    def _end_value(self) -> None:
        if not self._stack:
            self.done = True
            return
        self._key = False
        self._state = self._after_value

    def _after_value(self, text: str, at: int) -> int:
        at = self._blank(text, at)
        if at == len(text):
            return at
        if text[at] == _CLOSERS[self._stack[-1]]:
            return self._close(text, at)
        if text[at] != ",":
            return self._fail(at)
        self._separator = ", "
        self._state = self._value
        return at + 1

    def _colon(self, text: str, at: int) -> int:
        at = self._blank(text, at)
        if at == len(text):
            return at
        if text[at] != ":":
            return self._fail(at)
        self._separator = ": "
        self._key = True
        self._state = self._value
        return at + 1

    def _string(self, text: str, at: int) -> int:
        character = text[at]
        if character == self._quote:
            self._output.append('"')
            if self._stack and self._stack[-1] == "{" and not self._key:
                self._state = self._colon
            else:
                self._end_value()
            return at + 1
        if character == "\\":
            self._state = self._escape
            return at + 1
        found = _string_run.match(text, at)
        end = found.end() if found else at + 1
        self._output.append(quoted(text[at:end])[1:-1])
        return end

    def _escape(self, text: str, at: int) -> int:
        character = text[at]
        if character in _HEX_LENGTHS:
            self._token = ""
            self._hex_letter = character
            self._state = self._hex
            return at + 1
        self._state = self._string
        # As in Python, a backslash before any other character is literal.
        meant = character if character in "\\'\"" else _ESCAPES.get(character, "\\" + character)
        self._output.append(quoted(meant)[1:-1])
        return at + 1

    def _hex(self, text: str, at: int) -> int:
        token = self._token + text[at]
        if text[at] not in _HEX or (len(token) == 8 and int(token, 16) > sys.maxunicode):
            return self._fail(at, f"\\{self._hex_letter}{self._token}")
        self._token = token
        if len(token) == _HEX_LENGTHS[self._hex_letter]:
            code = int(token, 16)
            # A lone surrogate can't be encoded in UTF-8, but JSON can escape it.
            self._output.append(f"\\u{code:04x}" if 0xD800 <= code <= 0xDFFF else quoted(chr(code))[1:-1])
            self._state = self._string
        return at + 1

    def _word(self, text: str, at: int) -> int:
        """State inside a number or keyword, which is output once the character after it has been seen."""
        room = TOKEN_LIMIT - len(self._token)
        found = _token_run.match(text, at, at + room)
        end = found.end() if found else at
        self._token += text[at:end]
        if end < len(text):
            json = _as_json(self._token)
            if json is None:
                return self._fail(end, self._token)
            self._emit(json)
            self._end_value()
        return end


def _as_json(token: str) -> str | None:
    if token in _WORDS:
        return _WORDS[token]
    if _json_number.fullmatch(token):
        return token
    if _whole_number.fullmatch(token):
        return str(int(token))
    if _decimal_number.fullmatch(token):
        number = repr(float(token))
        return number if _json_number.fullmatch(number) else None
    return None


def python_value(source: Source, emit: Callable[[str], None]) -> Script[None]:
    """Read one Python literal and pass it to ``emit`` as JSON, in chunks.

    Raises :class:`Malformed` at the first invalid character; the valid text before it has been emitted by then.
    """
    yield from read_value(PythonScanner(), source, emit)

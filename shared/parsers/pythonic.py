"""Pythonic tool calls: a list, ``[f(a=1), g(b="x")]``, or a line for each, perhaps in a code block.

A value is read whole before it is output as JSON. Nothing is ever evaluated.
"""

import ast
import json
import re
from typing import Any

from shared.parsers.format import ToolFormat
from shared.parsers.json_text import quoted
from shared.parsers.offer import Offer
from shared.parsers.parts import Writer
from shared.parsers.source import NAME_LIMIT, Malformed, Script, Source

VALUE_LIMIT = 100_000
"""Maximum length of an argument in characters. Outside strings, each counts as ten, because it takes more time."""

PYTHON_LIMIT = VALUE_LIMIT // 10
"""Maximum length of a text that is parsed as Python wherever it is."""

MAX_DEPTH = 64
"""Maximum depth of an argument's brackets."""

_name_characters = re.compile(r"[\w.-]*")
_outside_strings = re.compile(r"[^'\"()\[\]{},]*")
_inside_string = {"'": re.compile(r"[^'\\]*"), '"': re.compile(r'[^"\\]*')}
_RAW = str.maketrans({"\n": r"\n", "\r": r"\r", "\0": r"\x00"})
"""Characters that models write inside strings although Python requires escapes."""

_next_argument = re.compile(r",\s*(?:([\w.-]+\s*=|\))|[\w.-]*\s*)")
_space = re.compile(r"\s*")
_cut_escape = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:x[0-9a-fA-F]?|[uU][0-9a-fA-F]{0,7})?$")
_zeros = re.compile(r"(?<=^)0[0_]*(?=\d+$)|(?<=^-)0[0_]*(?=\d+$)")
_no_escape = re.compile(r"\\(?:x(?![0-9a-fA-F]{2})|u(?![0-9a-fA-F]{4})|U(?![0-9a-fA-F]{8}))")
_backslash = re.compile(r"\\(?!['\"])")
_ESCAPED = frozenset("\\'\"abfnrtv0xuU\n")
_WORDS = {"true": True, "false": False, "null": None}


def read_pythonic_calls(source: Source, writer: Writer, trigger: str, form: ToolFormat, offer: Offer) -> Script[None]:
    """Read calls. Without a ``trigger``, the first call must name a tool on offer.

    Raises :class:`Malformed` on invalid input.
    """
    yield from source.skip_space()
    body: list[str] = []
    source.recorded = body
    if (yield from source.match("```python")) is not None:
        yield from source.skip_space()
    listed = (yield from source.match("[")) is not None
    if not (listed or trigger):
        raise Malformed
    first = True
    while True:
        yield from source.skip_space()
        name = yield from source.run(_name_characters, NAME_LIMIT)
        if not name or (first and not trigger and name not in offer):
            raise Malformed
        yield from _call(source, writer, name)
        first = False
        following = yield from source.skip_space()
        if following == "," and listed:
            source.take(source.at + 1)
        elif listed or not _name_characters.match(following).end():  # type: ignore[union-attr]
            break
    if listed:
        yield from source.expect("]")
        source.commit()
        yield from source.skip_space()
    if (yield from source.match("```")) is not None:
        yield from source.skip_space()
    source.recorded = None
    if (end := (yield from source.match(*form.ends))) is not None:
        source.commit()
        # LFM2 may write the same calls again, without their beginning.
        if (yield from source.match("".join(body) + end)) is not None:
            source.commit()


def _call(source: Source, writer: Writer, name: str) -> Script[None]:
    yield from source.expect("(")
    following = yield from source.skip_space()
    before = "{"
    while following != ")":
        # Not parsed as Python, because parameters may have the names of keywords, such as "from".
        key = yield from source.run(_name_characters, NAME_LIMIT)
        yield from source.skip_space()
        yield from source.expect("=")
        if not key:
            raise Malformed
        if before == "{":
            writer.open(name)
        writer.arguments(f"{before}{quoted(key)}: ")
        source.commit()
        literal = yield from _literal(source)
        try:
            value = python_json(literal)
        except Malformed:
            if not source.exhausted:
                raise
            value = _begun_string(literal)
        writer.arguments(value)
        source.commit()
        before = ", "
        following = yield from source.skip_space()
        if following == ",":
            source.take(source.at + 1)
            following = yield from source.skip_space()
        elif following != ")":
            raise Malformed
    source.take(source.at + 1)
    if before == "{":
        writer.open(name)
        writer.arguments("{}")
    else:
        writer.arguments("}")
    writer.close()
    source.commit()


def _literal(source: Source) -> Script[str]:
    """Consume a value up to the comma or bracket after it; return it with the escapes that Python requires.

    A quote ends a string if what may follow a string comes next, and is part of it otherwise.
    """
    pieces: list[str] = []
    quote, depth, room = "", 0, VALUE_LIMIT
    while True:
        price = 1 if quote else 10
        text = yield from source.run(_inside_string[quote] if quote else _outside_strings, room // price)
        stop = yield from source.peek()
        if not stop or (not quote and not depth and stop in ",)]}"):
            return "".join((*pieces, text)).strip()
        source.take(source.at + 1)
        if quote:
            text = text.translate(_RAW)
        if stop == "\\":
            escaped = yield from source.peek()
            source.take(source.at + 1)
            # As in Python, a backslash before any other character is literal.
            stop += escaped if not escaped or escaped in _ESCAPED else "\\" + escaped.translate(_RAW)
        elif quote:
            space = yield from source.run(_space, room)
            if (yield from _string_ends(source, depth)):
                quote = ""
                stop += space
            else:
                stop = "\\" + stop + space.translate(_RAW)
        elif stop in "'\"":
            quote = stop
        else:
            depth += (stop in "([{") - (stop in ")]}")
        pieces += (text, stop)
        room -= price * (len(text) + len(stop))
        if room < 0 or depth > MAX_DEPTH:
            raise Malformed


def _string_ends(source: Source, depth: int) -> Script[bool]:
    """Return whether what follows a quote may follow a string: outside brackets, the end or the next argument."""
    following = yield from source.peek()
    if depth or following != ",":
        return following in (",)]}:" if depth else ")")
    while True:
        found = _next_argument.match(source.text, source.at)
        open_end = found is not None and found[1] is None and found.end() == len(source.text)
        if not open_end or found is None or found.end() - source.at > NAME_LIMIT:
            return found is not None and found[1] is not None
        if not (yield from source.more()):
            return True


def _begun_string(literal: str) -> str:
    """Return the JSON of a string that the end of the text has cut, without its end.

    Raises :class:`Malformed` for any other value, of which there is no beginning.
    """
    if literal[:1] not in _inside_string:
        raise Malformed
    return python_json(_cut_escape.sub(r"\1", literal) + literal[0])[:-1]


def python_json(literal: str) -> str:
    """Return a Python literal as JSON: scalars, lists, tuples, sets, dictionaries with string keys."""
    try:
        value = _value(_parsed(literal))
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Malformed from None
    # UTF-8 has no lone surrogates, but JSON can escape them.
    return text.encode(errors="backslashreplace").decode()


def _parsed(literal: str) -> ast.expr:
    """Return the expression; also of a number that begins with 0, and of strings such as Windows paths."""
    try:
        return ast.parse(literal, mode="eval").body
    except SyntaxError:
        repaired = _zeros.sub("", literal)
        if _no_escape.search(repaired):
            repaired = _backslash.sub(r"\\\\", repaired)
        return ast.parse(repaired, mode="eval").body


def _value(node: ast.expr | None) -> Any:
    match node:
        case ast.Constant(value=str() | int() | float() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.UnaryOp(op=ast.UAdd(), operand=ast.Constant(value=int() | float() as value)):
            return value
        case ast.Name(id="true" | "false" | "null" as word):
            return _WORDS[word]
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return [_value(item) for item in items]
        case ast.Dict(keys=keys, values=values) if all(_is_text(key) for key in keys):
            return dict(zip(map(_value, keys), map(_value, values), strict=True))
    raise Malformed


def _is_text(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)

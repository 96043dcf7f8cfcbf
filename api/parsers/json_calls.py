"""Calls written as JSON: one object or a list of objects with a name and arguments."""

from collections.abc import Container

import msgspec

from api.parsers.json_text import is_json_object, json_value
from api.parsers.source import Malformed, Script, Source
from api.parsers.writer import Writer

NAME = "name"
ARGUMENTS = frozenset({"arguments", "parameters"})
IGNORED = frozenset({"id", "index", "type"})
"""Fields that models write beside the name: ids are ours to give."""


def read_json_calls(
    source: Source, writer: Writer, trigger: str, *, known: Container[str], ends: tuple[str, ...], separators: str = ""
) -> Script[None]:
    """Read calls and the marker behind them, if there is one. Without a ``trigger``, only ``known`` tools count.

    Raises :class:`Malformed` on a fault.
    """
    yield from json_calls(source, writer, known=None if trigger else known, separators=separators)
    if (yield from source.match(*ends)) is not None:
        source.forget()


def json_calls(
    source: Source, writer: Writer, *, known: Container[str] | None = None, separators: str = ""
) -> Script[None]:
    """Read an object or a list, and further ones that follow directly or after one of ``separators``.

    Where ``known`` is given, other names are no calls. Raises :class:`Malformed` when there is no call at all,
    or the text breaks off inside one; text after the last call is left in the source.
    """
    following = yield from source.skip_space()
    if following not in ("{", "["):
        raise Malformed
    while following and following in "{[":
        if following == "{":
            yield from _call(source, writer, known)
        else:
            yield from _list(source, writer, known)
        following = yield from source.skip_space()
        if following and following in separators:
            source.take(source.at + 1)
            following = yield from source.skip_space()


def stream_arguments(source: Source, writer: Writer) -> Script[None]:
    """Read a JSON object as the arguments of the open call, and close it. Raises :class:`Malformed` on a fault."""

    def tell(piece: str) -> None:
        writer.arguments(piece)
        source.forget()

    yield from json_value(source, tell)
    writer.close()


def _list(source: Source, writer: Writer, known: Container[str] | None) -> Script[None]:
    yield from source.expect("[")
    while True:
        if (yield from source.skip_space()) != "{":
            raise Malformed
        yield from _call(source, writer, known)
        following = yield from source.skip_space()
        if following != ",":
            break
        source.take(source.at + 1)
    if following == "]":
        source.take(source.at + 1)
        source.forget()


def _call(source: Source, writer: Writer, known: Container[str] | None) -> Script[None]:
    """Read one call, its fields in any order, and tell it as soon as its name is known.

    Once the arguments are complete the call stands, even if its end is missing.
    """
    name: str | None = None
    arguments: str | None = None
    told = False
    yield from source.expect("{")
    following = yield from source.skip_space()
    while following != "}":
        key = yield from _string(source)
        yield from source.skip_space()
        yield from source.expect(":")
        following = yield from source.skip_space()
        if key == NAME and name is None:
            name = yield from _string(source)
            if not name or (known is not None and name not in known):
                raise Malformed
        elif key in ARGUMENTS and arguments is None:
            if name is not None and following == "{":
                writer.open(name)
                yield from stream_arguments(source, writer)
                arguments, told = "", True
            else:
                arguments = yield from _arguments(source, following)
        elif key in IGNORED:
            yield from json_value(source, lambda _: None)
        else:
            raise Malformed
        if name is not None and arguments is not None and not told:
            _tell(source, writer, name, arguments)
            told = True
        following = yield from source.skip_space()
        if following == ",":
            source.take(source.at + 1)
            following = yield from source.skip_space()
        elif following != "}":
            if told:
                return
            raise Malformed
    source.take(source.at + 1)
    if not told:
        if name is None:
            raise Malformed
        _tell(source, writer, name, "{}")
    source.forget()


def _tell(source: Source, writer: Writer, name: str, arguments: str) -> None:
    writer.open(name)
    writer.arguments(arguments)
    writer.close()
    source.forget()


def _arguments(source: Source, first: str) -> Script[str]:
    """Arguments that can't be told at once: before the name, or written as a string or as nothing."""
    pieces: list[str] = []
    yield from json_value(source, pieces.append)
    text = "".join(pieces)
    if first == '"':
        text = _decoded(text).strip() or "{}"
    elif text == "null":
        text = "{}"
    if not is_json_object(text):
        raise Malformed
    return text


def _string(source: Source) -> Script[str]:
    if (yield from source.peek()) != '"':
        raise Malformed
    pieces: list[str] = []
    yield from json_value(source, pieces.append)
    return _decoded("".join(pieces))


def _decoded(text: str) -> str:
    try:
        return msgspec.json.decode(text, type=str)
    except msgspec.DecodeError:
        raise Malformed from None

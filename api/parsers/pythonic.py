"""Pythonic tool calls, a list of function calls: ``[f(a=1), g(b="x")]`` (Llama 3.2 and 4, LFM2)."""

import re
from collections.abc import Container

from api.parsers.json_text import quoted
from api.parsers.python_text import python_value
from api.parsers.source import NAME_LIMIT, Malformed, Script, Source
from api.parsers.writer import Writer

_name_characters = re.compile(r"[\w.-]*")


def read_pythonic_calls(
    source: Source, writer: Writer, trigger: str, *, known: Container[str], ends: tuple[str, ...]
) -> Script[None]:
    """Read one list. Without a ``trigger``, the first call must name a ``known`` tool.

    Raises :class:`Malformed` on invalid input.
    """
    yield from source.skip_space()
    yield from source.expect("[")
    first = True
    while True:
        yield from source.skip_space()
        name = yield from source.run(_name_characters, NAME_LIMIT)
        if not name or (first and not trigger and name not in known):
            raise Malformed
        yield from _call(source, writer, name)
        first = False
        if (yield from source.skip_space()) != ",":
            break
        source.take(source.at + 1)
    yield from source.expect("]")
    source.commit()
    yield from source.skip_space()
    if (yield from source.match(*ends)) is not None:
        source.commit()


def _call(source: Source, writer: Writer, name: str) -> Script[None]:
    def emit(piece: str) -> None:
        writer.arguments(piece)
        source.commit()

    yield from source.expect("(")
    following = yield from source.skip_space()
    before = "{"
    while following != ")":
        key = yield from source.run(_name_characters, NAME_LIMIT)
        yield from source.skip_space()
        yield from source.expect("=")
        if not key:
            raise Malformed
        if before == "{":
            writer.open(name)
        emit(f"{before}{quoted(key)}: ")
        yield from python_value(source, emit)
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

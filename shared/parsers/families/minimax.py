"""MiniMax M3: an element for each argument and for each part of one, with a special token before each tag.

``TOKEN<invoke name="NAME">TOKEN<KEY>VALUETOKEN</KEY>TOKEN</invoke>``; items of arrays are elements named ``item``.
"""

from collections.abc import Callable
from typing import Any

from shared.parsers.elements import converted, named
from shared.parsers.format import CallShape, ToolFormat
from shared.parsers.json_text import quoted
from shared.parsers.offer import Offer
from shared.parsers.parts import Writer
from shared.parsers.schema_types import ITEM, SchemaTypes
from shared.parsers.source import NAME_LIMIT, Malformed, Script, Source, markers

TOKEN = "]<]minimax[>["  # noqa: S105
MAX_DEPTH = 64
"""Maximum depth of elements in a value."""

_INVOKE, _INVOKE_END = f"{TOKEN}<invoke", f"{TOKEN}</invoke>"
_CALLS, _CALLS_END = f"{TOKEN}<tool_call>", f"{TOKEN}</tool_call>"


def read_nested_calls(source: Source, writer: Writer, trigger: str, form: ToolFormat, offer: Offer) -> Script[None]:
    """Read the calls after a trigger. Raises :class:`Malformed` on invalid input."""
    if trigger != _INVOKE:
        yield from source.skip_space()
        yield from source.expect(_INVOKE)
    while True:
        header, _ = yield from source.until(markers(">"), NAME_LIMIT)
        name = named(header)
        if not name:
            raise Malformed
        writer.open(name)
        writer.arguments("{")
        source.commit()
        types, schema = offer.document(name)
        separator = ""
        while not (yield from _at_end(source, _INVOKE_END)):
            key = yield from _key(source)
            writer.arguments(f"{separator}{quoted(key)}: ")
            source.commit()
            yield from _value(source, writer.arguments, key, types, types.part(schema, key), 0)
            source.commit()
            separator = ", "
        writer.arguments("}")
        writer.close()
        source.commit()
        if (yield from _at_end(source, _CALLS_END)) or (yield from source.match(_INVOKE)) is None:
            source.commit()
            return


def _at_end(source: Source, end: str) -> Script[bool]:
    yield from source.skip_space()
    return (yield from source.match(end)) is not None


def _key(source: Source, begin: str = f"{TOKEN}<") -> Script[str]:
    yield from source.expect(begin)
    key, _ = yield from source.until(markers(">"), NAME_LIMIT)
    if not key or key.startswith("/"):
        raise Malformed
    return key


def _value(
    source: Source, write: Callable[[str], None], key: str, types: SchemaTypes, schema: Any, depth: int
) -> Script[None]:
    """Read a value and the end of its element, and pass its JSON to ``write``."""
    end = f"{TOKEN}</{key}>"
    kinds = types.types(schema)
    if depth > MAX_DEPTH:
        raise Malformed

    def emit(piece: str) -> None:
        write(quoted(piece)[1:-1])
        if not depth:
            source.commit()

    if kinds == {"string"}:
        write('"')
        if (yield from source.through(markers(end), emit, emit_cut_stop=False)) is None:
            raise Malformed
        write('"')
        return
    text: list[str] = []
    textual = "string" in kinds and schema != {}
    stop = yield from source.through(markers(end if textual else TOKEN), text.append, emit_cut_stop=False)
    if stop == TOKEN and (yield from source.ahead((end.removeprefix(TOKEN),))) is None:
        write((yield from _parts(source, end, kinds, types, schema, depth)))
        return
    if stop != end:
        yield from source.expect(end.removeprefix(TOKEN))
    write(converted("".join(text), kinds, encoded=False))


def _parts(source: Source, end: str, kinds: frozenset[str], types: SchemaTypes, schema: Any, depth: int) -> Script[str]:
    """Read the elements of a value, behind the first token, up to ``end``; return an array, or an object.

    Members of an object that are repeated are an array.
    """
    members: dict[str, list[str]] = {}
    begin = "<"
    while not members or not (yield from _at_end(source, end)):
        key = yield from _key(source, begin)
        begin = f"{TOKEN}<"
        pieces: list[str] = []
        part = types.part(schema, ITEM if key == ITEM and "array" in kinds else key)
        yield from _value(source, pieces.append, key, types, part, depth + 1)
        members.setdefault(key, []).append("".join(pieces))
    if "array" in kinds and members.keys() == {ITEM}:
        return f"[{', '.join(members[ITEM])}]"
    listed = [
        f"{quoted(key)}: {values[0] if len(values) == 1 else '[' + ', '.join(values) + ']'}"
        for key, values in members.items()
    ]
    return "{" + ", ".join(listed) + "}"


TOOLS = (
    ToolFormat(
        name="minimax_m3",
        triggers=(_CALLS, _INVOKE),
        ends=(_CALLS_END,),
        special_tokens=(TOKEN,),
        read=read_nested_calls,
        in_reasoning=True,
        shape=CallShape(
            trigger=_INVOKE,
            begin=f'{_INVOKE} name="{{name}}">',
            end=_INVOKE_END,
            content="nested",
            quote=TOKEN,
            separator="\n",
            group=(f"{_CALLS}\n", f"\n{_CALLS_END}"),
        ),
    ),
)

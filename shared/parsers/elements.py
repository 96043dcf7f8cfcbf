"""Tool calls with an element for each argument, as in Qwen3-Coder's ``<function=NAME><parameter=KEY>VALUE``.

The values are bare text. The tool's schema decides whether ``5`` is a number or a string.
"""

import re
from collections.abc import Callable, Container
from functools import partial

import msgspec

from shared.parsers.format import Elements, ToolFormat
from shared.parsers.json_text import quoted
from shared.parsers.offer import Offer, ParameterTypes
from shared.parsers.parts import Writer
from shared.parsers.pythonic import PYTHON_LIMIT, python_json
from shared.parsers.schema_types import ANY_TYPE, kinds_of_value
from shared.parsers.source import NAME_LIMIT, Malformed, Script, Source, markers

_CDATA = "<![CDATA["
_CDATA_END = markers("]]>")
_space = re.compile(r"\s*")
_attribute = re.compile(r"""=\s*(?:"([^"]*)"|'([^']*)')""")
_AROUND = frozenset({"arguments", "input", "parameters", "properties"})
"""What models write around all arguments, as if it were one."""
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


def read_element_calls(source: Source, writer: Writer, trigger: str, form: ToolFormat, offer: Offer) -> Script[None]:
    """Read a call, or a group of them, after ``trigger``. Raises :class:`Malformed` on invalid input."""
    elements = form.shape.elements
    if elements is None:
        raise Malformed
    following: str | None = trigger
    if trigger != elements.call:
        yield from source.skip_space()
        following = yield from source.match(elements.call)
    if following is None:
        raise Malformed
    while following is not None:
        yield from _call(source, writer, form.ends, elements, offer)
        yield from source.skip_space()
        if (yield from source.match(*form.ends)) is not None:
            source.commit()
            return
        following = None if elements.call in form.triggers else (yield from source.match(elements.call))


def _call(source: Source, writer: Writer, ends: tuple[str, ...], elements: Elements, offer: Offer) -> Script[None]:
    tags = (elements.key, elements.call_end, *ends)
    name, tag = yield from source.until(markers(*elements.name_ends, *tags), NAME_LIMIT)
    name = named(name)
    if not name:
        raise Malformed
    writer.open(name)
    writer.arguments("{")
    source.commit()
    types = offer.types(name)
    following: str | None = tag
    if tag not in tags:
        yield from source.skip_space()
        following = yield from source.match(*tags)
    separator = ""
    while following == elements.key:
        header, _ = yield from source.until(markers(*_lines(elements.key_end)), NAME_LIMIT)
        key = named(header)
        if not key:
            raise Malformed
        if elements.value:
            yield from source.skip_space()
            yield from source.match(elements.value)
        sign = elements.text_sign and (elements.text_sign in header)
        read = partial(_value, source, keys=types, types=types.get(key, ANY_TYPE), sign=sign, tags=tags, form=elements)
        if not separator and key in _AROUND and types and key not in types:
            pieces: list[str] = []
            following = yield from read(pieces.append)
            inner = "" if following == elements.key else _members("".join(pieces), types)
            writer.arguments(inner or "".join((quoted(key), ": ", *pieces)))
        else:
            writer.arguments(f"{separator}{quoted(key)}: ")
            source.commit()
            following = yield from read(writer.arguments)
        separator = ", "
    if following is None:
        raise Malformed
    writer.arguments("}")
    writer.close()
    source.commit()


def _lines(end: str) -> tuple[str, ...]:
    """Return the ends of a name: a name ends at its line too."""
    return (end, "\n")


def named(header: str) -> str:
    """Return the name in ``header``: its first quoted attribute, or all of it."""
    attribute = _attribute.search(header)
    return (attribute[1] or attribute[2] or "" if attribute else header).strip()


def _value(
    source: Source,
    write: Callable[[str], None],
    *,
    keys: ParameterTypes,
    types: frozenset[str],
    sign: bool | str,
    tags: tuple[str, ...],
    form: Elements,
) -> Script[str | None]:
    """Read a value of ``types``, pass its JSON to ``write``, and return the tag that follows it, which is consumed.

    ``sign`` says whether it was marked as a string; "" if the family has no such mark.
    """

    emit = source.committing(lambda piece: write(quoted(piece)[1:-1]))
    if form.trimmed and (yield from source.peek()) == "\n":
        source.take(source.at + 1)
    if types == {"string"} or (sign is True and "string" in types):
        write('"')
        following = yield from _through_end(source, emit, keys, tags, form)
        write('"')
    else:
        pieces: list[str] = []
        following = yield from _through_end(source, pieces.append, keys, tags, form)
        write(converted("".join(pieces), types, encoded=sign is False))
    source.commit()
    return following


def _through_end(
    source: Source, emit: Callable[[str], None], keys: ParameterTypes, tags: tuple[str, ...], elements: Elements
) -> Script[str | None]:
    """Consume a value, its end and the tag that follows, which is returned; pass the value to ``emit`` in chunks.

    A value may contain the tags. Its end is one if another tag follows; the end of the call, where the model has
    forgotten that of the value, only before that of the calls; the start of an argument only at the beginning of a line
    and before the name of a parameter. Raises :class:`Malformed` if there is no end.
    """
    key, call_end, *outer = tags
    if elements.cdata and (yield from source.match(_CDATA)) is not None:
        if (yield from source.through(_CDATA_END, emit, emit_cut_stop=False)) is None:
            raise Malformed
        emit = _discard
    newlines = ("\n", "") if elements.trimmed else ("",)
    ends = markers("\n" + key, *(newline + tag for newline in newlines for tag in (elements.value_end, call_end)))
    names = tuple(
        elements.begin.replace("{key}", name).partition("{type}")[0].removeprefix(key).rstrip() for name in keys
    )
    while True:
        stop = yield from source.through(ends, emit, emit_cut_stop=False)
        if stop is None:
            raise Malformed
        if stop == "\n" + key:
            if (yield from source.ahead(names)) is not None:
                return key
            emit(stop)
            continue
        space = yield from source.run(_space, NAME_LIMIT)
        following = yield from source.ahead(tags)
        if following is not None and stop.endswith(elements.value_end):
            return (yield from source.match(following))
        if following in outer:
            return call_end
        if source.exhausted:
            raise Malformed
        emit(stop + space)


def _discard(piece: str) -> None:
    pass


def _members(text: str, names: Container[str]) -> str:
    """Return an object in JSON, or in a string, without its brackets; empty unless its members have ``names``."""
    try:
        found = msgspec.json.decode(text)
        found = msgspec.json.decode(found) if isinstance(found, str) else found
    except (msgspec.DecodeError, RecursionError):
        return ""
    known = isinstance(found, dict) and found and all(name in names for name in found)
    return msgspec.json.encode(found).decode()[1:-1] if known else ""


def converted(text: str, types: frozenset[str], *, encoded: bool) -> str:
    """Return ``text`` as JSON of one of ``types``, or as a JSON string if it has none of these types.

    ``encoded``: a string is written as JSON too.
    """
    bare = text.strip()
    bare = _PYTHON_WORDS.get(bare, bare)
    try:
        kinds = kinds_of_value(msgspec.json.decode(bare))
    except (msgspec.DecodeError, RecursionError):
        if bare.isascii() and bare.isdecimal() and "integer" in types and "string" not in types:
            return bare.lstrip("0") or "0"
        return _python_collection(bare, types) or quoted(text)
    if "string" in kinds and not encoded:
        return quoted(text)
    return bare if types & kinds else quoted(text)


def _python_collection(text: str, types: frozenset[str]) -> str:
    """Return a Python list or dictionary as JSON; empty if ``text`` is none, or ``types`` does not allow it."""
    kind = {"[": "array", "{": "object"}.get(text[:1])
    if kind not in types or len(text) > PYTHON_LIMIT:
        return ""
    try:
        return python_json(text)
    except Malformed:
        return ""

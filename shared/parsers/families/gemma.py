"""Gemma 4 and FunctionGemma: a call is ``call:NAME{KEY:VALUE}``, with a special token as the quote of strings.

Values may be JSON as well.
"""

import re
from collections.abc import Iterable
from functools import partial

from shared.parsers.format import CallShape, ReasoningFormat, ToolFormat
from shared.parsers.json_calls import json_string
from shared.parsers.json_text import json_value, quoted
from shared.parsers.offer import Offer
from shared.parsers.parts import Writer
from shared.parsers.source import NAME_LIMIT, Malformed, Script, Source, markers

MAX_DEPTH = 64
"""Maximum depth of brackets in a value."""

_bare = re.compile(r"[^,\[\]{}<\"]*")
_WORDS = {"True": "true", "False": "false", "None": "null", "": "null"}
_number = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?")


def read_gemma_calls(
    source: Source, writer: Writer, trigger: str, form: ToolFormat, offer: Offer, *, quote: str
) -> Script[None]:
    """Read the calls between a trigger and the end marker. Raises :class:`Malformed` on invalid input."""
    while True:
        yield from source.skip_space()
        if (yield from source.match("call:", *(":" if trigger else ()))) is None:
            raise Malformed
        name, _ = yield from source.until(markers("{"), NAME_LIMIT)
        name = name.strip()
        if not name:
            raise Malformed
        writer.open(name)
        source.commit()
        yield from _object(source, writer, quote, 1)
        writer.close()
        source.commit()
        yield from source.skip_space()
        if (yield from source.ahead(("call:",))) is None:
            break
    if (yield from source.match(*form.ends)) is not None:
        source.commit()


def _emit(source: Source, writer: Writer, text: str) -> None:
    writer.arguments(text)
    source.commit()


def _object(source: Source, writer: Writer, quote: str, depth: int) -> Script[None]:
    """Read the members behind an opening bracket."""
    before = "{"
    while (yield from source.skip_space()) != "}":
        if (yield from source.match(quote)) is not None:
            key, _ = yield from source.until(markers(quote), NAME_LIMIT)
            yield from source.skip_space()
            yield from source.expect(":")
        elif (yield from source.peek()) == '"':
            key = yield from json_string(source)
            yield from source.skip_space()
            yield from source.expect(":")
        else:
            key, _ = yield from source.until(markers(":"), NAME_LIMIT)
        _emit(source, writer, f"{before}{quoted(key.strip())}: ")
        before = ", "
        yield from _value(source, writer, quote, depth)
        yield from _comma(source, "}")
    source.take(source.at + 1)
    _emit(source, writer, "{}" if before == "{" else "}")


def _array(source: Source, writer: Writer, quote: str, depth: int) -> Script[None]:
    _emit(source, writer, "[")
    before = ""
    while (yield from source.skip_space()) != "]":
        _emit(source, writer, before)
        before = ", "
        yield from _value(source, writer, quote, depth)
        yield from _comma(source, "]")
    source.take(source.at + 1)
    _emit(source, writer, "]")


def _comma(source: Source, end: str) -> Script[None]:
    following = yield from source.skip_space()
    if following == ",":
        source.take(source.at + 1)
    elif following != end:
        raise Malformed


def _value(source: Source, writer: Writer, quote: str, depth: int) -> Script[None]:
    def emit(piece: str) -> None:
        _emit(source, writer, quoted(piece)[1:-1])

    following = yield from source.skip_space()
    if depth > MAX_DEPTH:
        raise Malformed
    if following and following in "{[":
        source.take(source.at + 1)
        yield from (_object if following == "{" else _array)(source, writer, quote, depth + 1)
    elif following == '"':
        yield from json_value(source, partial(_emit, source, writer))
    elif (yield from source.match(quote)) is not None:
        _emit(source, writer, '"')
        if (yield from source.through(markers(quote), emit, emit_cut_stop=False)) is None:
            raise Malformed
        _emit(source, writer, '"')
    else:
        bare = (yield from source.run(_bare, NAME_LIMIT)).strip()
        if not (yield from source.peek()):
            raise Malformed
        word = _WORDS.get(bare, bare)
        known = word in ("true", "false", "null") or _number.fullmatch(word)
        _emit(source, writer, word if known else quoted(bare))


def _format(name: str, begin: str, end: str, quote: str, aliases: Iterable[str] = ()) -> ToolFormat:
    return ToolFormat(
        name=name,
        aliases=tuple(aliases),
        triggers=(begin,),
        leads=("call:{name}{",),
        ends=(end,),
        special_tokens=(begin, end, quote),
        read=partial(read_gemma_calls, quote=quote),
        shape=CallShape(trigger=begin, begin=f"{begin}call:{{name}}", end=end, content="quoted", quote=quote),
    )


TOOLS = (
    _format("gemma4", "<|tool_call>", "<tool_call|>", '<|"|>'),
    _format("functiongemma", "<start_function_call>", "<end_function_call>", "<escape>"),
)
REASONING = (
    ReasoningFormat(
        name="gemma4",
        begin="<|channel>thought\n",
        end="<channel|>",
        special_tokens=("<|channel>", "<channel|>"),
        wrappers=(("", "<channel|>"),),
        anywhere=True,
    ),
)

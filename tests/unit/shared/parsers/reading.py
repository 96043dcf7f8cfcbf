"""Joins the parts that a parser gives out to what a client would see."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from shared.parsers import CallArguments, CallClosed, CallOpened, Content, Parser, Part, Reasoning


@dataclass
class Call:
    """A call as a client would put it together; ``arguments`` is JSON text."""

    name: str
    arguments: str = ""
    closed: bool = False


@dataclass
class Parsed:
    """The parts of a whole text."""

    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)


def read(parser: Parser, pieces: Iterable[str], *, cut: bool = False) -> Parsed:
    """Feed ``pieces`` and join the parts, which must come in an order that a client can follow."""
    return join(parts_of(parser, pieces, cut=cut))


def parts_of(parser: Parser, pieces: Iterable[str], *, cut: bool = False) -> list[Part]:
    """Feed ``pieces``, end the text, and return all parts. ``cut``: the text was cut off."""
    parts = [part for piece in pieces for part in parser.feed(piece)]
    return parts + parser.finish(cut=cut)


def join(parts: Iterable[Part]) -> Parsed:
    """Join parts."""
    parsed = Parsed()
    ids = set()
    for part in parts:
        match part:
            case Content(text):
                assert text
                parsed.content += text
            case Reasoning(text):
                assert text
                parsed.reasoning += text
            case CallOpened(index, call_id, name):
                assert index == len(parsed.calls)
                assert len(call_id) == len("call_") + 24
                assert call_id not in ids
                ids.add(call_id)
                parsed.calls.append(Call(name))
            case CallArguments(index, text):
                assert index == len(parsed.calls) - 1
                assert text
                assert not parsed.calls[index].closed
                parsed.calls[index].arguments += text
            case CallClosed(index):
                assert index == len(parsed.calls) - 1
                parsed.calls[index].closed = True
    return parsed

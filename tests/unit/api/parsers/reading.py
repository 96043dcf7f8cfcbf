"""Joins the parts that a parser gives out to what a client would see."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from api.parsers import CallArguments, CallClosed, CallOpened, Content, Parser, Part, Reasoning


@dataclass
class Call:
    """A call as a client would put it together; ``arguments`` is JSON text."""

    name: str
    arguments: str = ""
    closed: bool = False


@dataclass
class Answer:
    """A whole answer."""

    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)


def read(parser: Parser, pieces: Iterable[str], *, cut: bool = False) -> Answer:
    """Feed ``pieces`` and join the parts, which must come in an order that a client can follow."""
    return join(parts_of(parser, pieces, cut=cut))


def parts_of(parser: Parser, pieces: Iterable[str], *, cut: bool = False) -> list[Part]:
    """Feed ``pieces``, end the text, and return all parts. ``cut``: the text was cut off."""
    parts = [part for piece in pieces for part in parser.feed(piece)]
    return parts + parser.finish(cut=cut)


def join(parts: Iterable[Part]) -> Answer:
    """Join parts to an answer."""
    answer = Answer()
    ids = set()
    for part in parts:
        match part:
            case Content(text):
                assert text
                answer.content += text
            case Reasoning(text):
                assert text
                answer.reasoning += text
            case CallOpened(index, call_id, name):
                assert index == len(answer.calls)
                assert len(call_id) == len("call_") + 24
                assert call_id not in ids
                ids.add(call_id)
                answer.calls.append(Call(name))
            case CallArguments(index, text):
                assert index == len(answer.calls) - 1
                assert text
                assert not answer.calls[index].closed
                answer.calls[index].arguments += text
            case CallClosed(index):
                assert index == len(answer.calls) - 1
                answer.calls[index].closed = True
    return answer

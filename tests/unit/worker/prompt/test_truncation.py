"""Truncation of conversations that are too long: which messages stay in the prompt."""

from collections.abc import Sequence

import msgspec
import pytest

from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.request import ChatRequest, Image, Message, Sampling, ToolCall
from worker.prompt.maker import Prompt, check_length
from worker.prompt.truncation import fit_prompt

SYSTEM = Message(role="system", content="be kind")


class Maker:
    """One token for each character of the contents; the images come at the end."""

    def __init__(self, context: int) -> None:
        self._context = context
        self.tokens = 0
        """Tokens of all prompts together."""

    def prepare(self, request: ChatRequest) -> Prompt:
        text = "".join(message.content for message in request.messages)
        self.tokens += len(text)
        if len(text) > self._context:
            raise refuse(ProblemKind.CONTEXT_LENGTH, f"{len(text)} tokens")
        return Prompt(tuple(map(ord, text)), tuple((number, len(text)) for number in range(len(request.images))))


def turns(count: int) -> list[Message]:
    call = ToolCall(id="c", name="f", arguments="{}")
    return [
        message
        for number in range(count)
        for message in (
            Message(role="user", content=f"u{number:04}"),
            Message(role="assistant", content="calls", tool_calls=(call,)),
            Message(role="tool", content=f"r{number:04}", tool_call_id="c"),
        )
    ]


def fitted(messages: Sequence[Message], context: int, *, truncate: bool = True) -> str:
    request = ChatRequest(model="m", messages=tuple(messages), truncate=truncate)
    return "".join(map(chr, fit_prompt(request, Maker(context).prepare).tokens))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 50])
def test_as_many_of_the_last_turns_stay_as_fit(count: int) -> None:
    for kept in range(1, count + 1):
        for spare in (0, 14):
            text = fitted([SYSTEM, *turns(count)], len(SYSTEM.content) + 15 * kept + spare)
            first = count - kept
            assert text.startswith(f"be kindu{first:04}callsr{first:04}")
            assert text.endswith(f"r{count - 1:04}")


def test_little_more_is_tokenised_than_fits() -> None:
    maker = Maker(context=1500)
    request = ChatRequest(model="m", messages=tuple(turns(10_000)), truncate=True)
    fit_prompt(request, maker.prepare)
    assert maker.tokens < 150_000 + 20 * 1500


def test_a_last_turn_that_is_too_long_is_refused() -> None:
    long = Message(role="user", content="x" * 100)
    with pytest.raises(RequestRefused, match="115 tokens"):
        fitted([*turns(1), long], 50)
    with pytest.raises(RequestRefused, match="100 tokens"):
        fitted([long], 50)
    with pytest.raises(RequestRefused, match="45 tokens"):
        fitted(turns(3), 20, truncate=False)


def test_other_problems_are_not_truncated_away() -> None:
    def prepare(request: ChatRequest) -> Prompt:
        kind = ProblemKind.CONTEXT_LENGTH if len(request.messages) == 9 else ProblemKind.TEMPLATE
        raise refuse(kind, "why")

    with pytest.raises(RequestRefused) as refusal:
        fit_prompt(ChatRequest(model="m", messages=tuple(turns(3)), truncate=True), prepare)
    assert refusal.value.problem.kind is ProblemKind.TEMPLATE


def test_images_keep_their_numbers_in_the_request() -> None:
    messages = [msgspec.structs.replace(one, images=(Image(at=0, param="p", url="u"),)) for one in turns(3)]
    request = ChatRequest(model="m", messages=tuple(messages), truncate=True)
    assert fit_prompt(request, Maker(context=20).prepare).images == ((6, 15), (7, 15), (8, 15))


def test_room_for_the_output_is_left_where_turns_can_be_left_out() -> None:
    """The length check is the real one; a turn has 15 characters, the context 100."""

    def prepare(request: ChatRequest) -> Prompt:
        text = "".join(message.content for message in request.messages)
        check_length(request, len(text), complete=True, context_length=100)
        return Prompt(tuple(map(ord, text)), ())

    def length(messages: Sequence[Message], max_tokens: int) -> int:
        sampling = Sampling(max_tokens=max_tokens)
        request = ChatRequest(model="m", messages=tuple(messages), truncate=True, sampling=sampling)
        return len(fit_prompt(request, prepare).tokens)

    assert [length(turns(10), wanted) for wanted in (1, 30, 50, 2**31 - 1)] == [90, 60, 45, 45]
    long = Message(role="user", content="x" * 99)
    assert [length([*turns(1), long], wanted) for wanted in (1, 50, 2**31 - 1)] == [99, 99, 99]

"""The budget of reasoning."""

import msgspec
import pytest

from shared.protocol.request import Sampling
from worker.engine.generation import Generation
from worker.engine.protocol import EngineSequence, ReasoningLimit
from worker.engine.text import Vocabulary

PIECES = [b"a", b" ", b"<think>", b"</", b"think>", b"<tool_call>", "é".encode()[:1], "é".encode()[1:], b"<th", b"ink>"]
A, SPACE, BEGIN, END_1, END_2, CALL, HALF, REST, BEGIN_1, BEGIN_2 = range(len(PIECES))
LIMIT = ReasoningLimit(tokens=3, begin="<think>", ends=("</think>",), end_tokens=(END_1, END_2))


def forced(*tokens: int, limit: ReasoningLimit = LIMIT) -> int | None:
    """The token that must follow ``tokens``; None if any may. It is the same wherever the output was interrupted."""
    found = set()
    for cut in range(len(tokens) + 1):
        sequence = EngineSequence(
            number=1, prompt=(1,), sampling=Sampling(), generated=tokens[:cut], reasoning_limit=limit
        )
        # As the engine's process gets it.
        sequence = msgspec.msgpack.decode(msgspec.msgpack.encode(sequence), type=EngineSequence)
        generation = Generation(sequence, Vocabulary(PIECES), end_tokens=(), limit=100)
        generation.append(tokens[cut:], ())
        mask = generation.excluded()
        left = () if mask is None else tuple(token for token, gone in enumerate(mask) if not gone)
        found.add(left[0] if len(left) == 1 else None)
    (only,) = found
    return only


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ((), None),
        ((BEGIN, A, A), None),
        ((BEGIN, A, A, A), END_1),
        ((BEGIN, A, A, A, END_1), END_2),
        ((BEGIN, A, A, A, END_1, END_2), None),
        ((SPACE, BEGIN_1, BEGIN_2, A, A, A), END_1),
        # It ended by itself.
        ((BEGIN, A, END_1, END_2, A, A, A, A), None),
        # Content may mention the marker.
        ((A, BEGIN, A, A, A, A, A), None),
        ((BEGIN, A, END_1, END_2, BEGIN, A, A, A, A), None),
        # Half a character is completed first.
        ((BEGIN, A, A, HALF), None),
        ((BEGIN, A, A, HALF, REST), END_1),
    ],
)
def test_the_end_is_forced_after_the_budget(tokens: tuple[int, ...], expected: int | None) -> None:
    assert forced(*tokens) == expected


def test_reasoning_that_the_prompt_opens_counts_from_the_first_token() -> None:
    limit = msgspec.structs.replace(LIMIT, opened=True)
    assert forced(A, A, limit=limit) is None
    assert forced(A, A, A, limit=limit) == END_1
    assert forced(limit=msgspec.structs.replace(limit, tokens=0)) == END_1


def test_content_follows_an_end_that_was_forced() -> None:
    def excluded(*tokens: int) -> list[int] | None:
        sequence = EngineSequence(number=1, prompt=(1,), sampling=Sampling(), generated=tokens, reasoning_limit=LIMIT)
        mask = Generation(sequence, Vocabulary(PIECES), end_tokens=(CALL,), limit=100).excluded()
        return None if mask is None else [token for token, gone in enumerate(mask) if gone]

    assert excluded(BEGIN, A, A, A, END_1, END_2) == excluded(BEGIN, A, A, A, END_1, END_2, SPACE) == [CALL]
    assert excluded(BEGIN, A, A, A, END_1, END_2, SPACE, A) is None
    assert excluded(BEGIN, A, END_1, END_2) is None


def test_a_call_inside_reasoning_is_not_cut() -> None:
    limit = msgspec.structs.replace(LIMIT, opened=True, ends=("</think>", "<tool_call>"))
    assert forced(A, CALL, A, A, A, A, limit=limit) is None


def test_reasoning_that_begins_again_has_what_is_left() -> None:
    limit = msgspec.structs.replace(LIMIT, again=True)
    assert forced(BEGIN, A, END_1, END_2, A, BEGIN, limit=limit) == END_1

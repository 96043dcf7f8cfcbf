"""A sequence's own account: when a constraint has begun to hold, and which special tokens stay in the text."""

import msgspec
import pytest

from shared.protocol.events import Delta
from shared.protocol.request import Sampling
from worker.engine.generation import Generation
from worker.engine.protocol import EngineSequence, LengthLimits, OutputGrammar
from worker.engine.text import Vocabulary
from worker.grammar.json_tokens import JsonTokens
from worker.grammar.lengths import LengthChecker

PIECES = [b"Hello ", b"<too", b"l>", b"<", b"end", b"<|x|>", b"<|y|>"]
VOCABULARY = Vocabulary(PIECES, special=(5, 6))
GRAMMAR = OutputGrammar("{}", tagged=True)


def generation(*tokens: int, grammar: OutputGrammar | None = None, triggers: tuple[str, ...] = ()) -> Generation:
    sequence = EngineSequence(
        number=1, prompt=(1,), sampling=Sampling(), generated=tokens, grammar=grammar, triggers=triggers
    )
    return Generation(sequence, VOCABULARY, end_tokens=(), limit=100)


@pytest.mark.parametrize(
    ("tokens", "held"),
    [((), False), ((0, 4), False), ((0, 1), True), ((0, 3), True), ((1, 2, 0), True), ((3, 0), False)],
)
def test_a_constraint_with_a_marker_holds_from_the_first_sign_of_it(tokens: tuple[int, ...], held: bool) -> None:
    assert generation(*tokens, grammar=GRAMMAR, triggers=("<tool>",)).is_constrained == held


def test_a_constraint_without_a_marker_holds_from_the_start() -> None:
    assert generation(grammar=GRAMMAR).is_constrained


def test_without_a_constraint_nothing_holds() -> None:
    assert not generation(1, 2).is_constrained


def test_shown_tokens_stay_in_the_text_and_other_special_ones_do_not() -> None:
    sequence = EngineSequence(number=1, prompt=(1,), sampling=Sampling(), shown_tokens=(5,))
    output = Generation(sequence, VOCABULARY, end_tokens=(), limit=100).append((5, 0, 6), ())
    assert output.delta == Delta(0, (5, 0, 6), "<|x|>Hello ")


def test_tokens_after_the_limit_are_ignored() -> None:
    """The stateful engine computes on while nobody reads."""
    sequence = EngineSequence(number=1, prompt=(1,), sampling=Sampling(), generated=(0,))
    output = Generation(sequence, VOCABULARY, end_tokens=(), limit=3).append((1, 2, 0, 4), ())
    assert (output.delta, output.reason) == (Delta(1, (1, 2), "<tool>"), "length")


@pytest.mark.parametrize("generated", [(), (1,), (1, 0)])
def test_a_string_that_is_too_long_ends_the_sequence_like_the_limit_of_tokens(generated: tuple[int, ...]) -> None:
    limits = (LengthLimits("", '{"type":"string","maxLength":5}'),)
    sequence = EngineSequence(number=1, prompt=(1,), sampling=Sampling(), generated=generated, length_limits=limits)
    # As the engine's process gets it.
    sequence = msgspec.msgpack.decode(msgspec.msgpack.encode(sequence), type=EngineSequence)
    vocabulary = Vocabulary([b"abc", b'"', b"de"])
    checker = LengthChecker(sequence.length_limits)
    going_on = Generation(sequence, vocabulary, end_tokens=(), limit=100, limits=checker)
    made = [going_on.append((token,), ()) for token in (1, 0, 2, 0)[len(generated) :]]
    assert [output.reason for output in made] == [None] * (len(made) - 1) + ["length"]


PARTS = [b'{ "', b"a", b'": ', b"7", b", ", b'", ', b'"', b'"}', b" }", b'\\", ', b', "b": "', b"[", b"],"]
LIMITS = [(LengthLimits("", "{}"),), (LengthLimits("", '{"properties":{"a":{"maxLength":2}}}'),)]


def excluded(tokens: tuple[int, ...], limits: tuple[LengthLimits, ...] = LIMITS[0], again: int = 0) -> list[int] | None:
    """The tokens that must not come after ``tokens``."""
    sequence = EngineSequence(number=1, prompt=(1,), sampling=Sampling(), generated=tokens, length_limits=limits)
    checker = LengthChecker(limits, JsonTokens(Vocabulary(PARTS))) if limits else None
    mask = Generation(sequence, Vocabulary(PARTS), end_tokens=(), limit=1000, limits=checker).excluded(again)
    return None if mask is None else [token for token, gone in enumerate(mask) if gone]


def test_after_a_name_that_occurs_again_the_object_gets_no_further_member() -> None:
    one = (0, 1, 2)
    assert excluded(()) is excluded(one) is excluded((*one, 3)) is excluded((*one, 6, 1, 6)) is None
    again = (*one, 3, 4, 6, 1, 2)
    assert excluded(again[:-1]) is None
    further = [0, 4, 10, 11, 12]
    assert excluded(again) == excluded((*again, 3)) == further
    assert excluded((*again, 6, 1)) == [5]
    assert excluded((*again, 6, 1, 6)) == further
    nested = (0, 1, 2, 0, 1, 2, 3, 4, 6, 1, 2, 3)
    assert excluded(nested) == further
    assert excluded((*nested, 8)) is None


def test_a_text_that_is_in_a_loop_ends() -> None:
    loop = (0, 1, 2, 11, *(6, 1, 6, 4) * 210)
    before = next(end for end in range(780, len(loop)) if excluded(loop[:end]))
    repeated = len("".join(PARTS[token].decode() for token in loop[4:before])) - len('"a", ')
    assert 1024 <= repeated < 1024 + len('"a", ')
    assert excluded(loop[:before]) == [0, 4, 10, 11, 12]
    # A string that has begun is closed.
    assert excluded((*loop[:before], 6)) == [token for token in range(len(PARTS)) if token not in (2, 6, 7)]
    different = (0, 1, 2, 11, *(6, 1, 3, 6, 4, 6, 1, 6, 4, 6, 3, 6, 4, 6, 3, 3, 6, 4, 3, 4) * 2)
    assert excluded(different) is None


def test_tokens_with_more_characters_than_a_string_has_room_for_are_excluded() -> None:
    assert excluded((0, 1, 2, 6), LIMITS[1]) == [9]
    assert excluded((0, 1, 2, 3), LIMITS[1]) is None


def test_tokens_that_would_close_a_string_too_early_are_excluded() -> None:
    limits = (LengthLimits("", '{"properties":{"a":{"minLength":5}}}', minimums=True),)
    closing = [0, 2, 5, 6, 7, 10]
    further = [10]
    value = (0, 1, 2, 6)
    assert excluded((0, 1), limits) == excluded((0, 1, 2, 3), limits) == further
    assert excluded(value, limits) == excluded((*value, 1, 1), limits) == closing
    assert excluded((*value, 1, 1, 1), limits) == [2, 5, 6, 7, 10]
    assert excluded((*value, 1, 1, 1, 9), limits) == further


def test_a_token_that_is_generated_again_is_the_only_one() -> None:
    assert excluded((0, 1, 2), again=2) == [token for token in range(len(PARTS)) if token != 1]
    assert excluded((0, 1, 2), (), 2) is None

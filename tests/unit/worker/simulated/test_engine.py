"""The simulated engine behaves as an engine must: deterministic, resumable, with faults where they were asked for."""

import msgspec
import pytest

from shared.protocol.errors import ProblemKind, RequestRefused
from shared.protocol.request import Sampling
from shared.runtime.settings import EngineSettings
from tests.support.engine_outputs import deltas_of, text_of, tokens_of
from worker.engine.protocol import EngineLoadError, EngineSequence, Output, OutputGrammar, StepOutput
from worker.simulated.engine import (
    END,
    Directives,
    SimulatedEngine,
    SimulatedOptions,
    decode,
    encode,
    is_one_sample,
    parse_directives,
    simulated_vocabulary,
)


def engine(path: str = "", context_length: int = 1000, prompts: str = "") -> SimulatedEngine:
    settings = EngineSettings(engine="simulated", sim_step=0.0, max_batch=4)
    options = SimulatedOptions.from_settings(
        settings, path=f"[[tokens 12]] {path}", context_length=context_length, prompts=prompts
    )
    return SimulatedEngine(options, lambda stage: None)


def test_only_workers_that_make_the_same_prompts_continue_a_stream() -> None:
    same, other = engine(prompts="system=Sing."), engine()
    assert engine(prompts="system=Sing.").engine_info.vocabulary == same.engine_info.vocabulary
    assert same.engine_info.vocabulary != other.engine_info.vocabulary


def sequence(text: str, number: int = 1, generated: tuple[int, ...] = (), **sampling: object) -> EngineSequence:
    return EngineSequence(
        number=number,
        prompt=encode(text),
        sampling=Sampling(**sampling),  # type: ignore[arg-type]
        generated=generated,
    )


def run(*sequences: EngineSequence) -> dict[int, list[StepOutput]]:
    machine = engine()
    outputs: dict[int, list[StepOutput]] = {one.number: [] for one in sequences}
    for one in sequences:
        machine.add(one)
    while machine.busy():
        for output in machine.step():
            outputs[output.number].append(output)
    return outputs


def test_the_same_prompt_gets_the_same_words_in_any_company() -> None:
    alone = run(sequence("tell me"))[1]
    together = run(sequence("tell me", 1), sequence("something else", 2))
    assert text_of(alone) == text_of(together[1])
    assert text_of(together[1]) != text_of(together[2])


def test_a_sampled_text_is_random_and_shows_whether_it_is_from_one_sequence() -> None:
    first = tokens_of(run(sequence("tell me", temperature=1.0, seed=1, max_tokens=8))[1])
    other = tokens_of(run(sequence("tell me", temperature=1.0, seed=2, max_tokens=8))[1])
    resumed = tokens_of(run(sequence("tell me", temperature=1.0, seed=2, max_tokens=8, generated=tuple(first[:4])))[1])
    assert first != other
    assert is_one_sample(first)
    assert is_one_sample([*first[:4], *resumed])
    assert not is_one_sample([*first[:4], *other[4:]])


def test_positions_count_tokens_and_only_the_last_output_has_a_reason() -> None:
    outputs = run(sequence("hello"))[1]
    assert [delta.position for delta in deltas_of(outputs)] == list(range(12))
    assert [output.reason for output in outputs] == [None] * 11 + ["stop"]
    assert tokens_of(outputs)[-1] == END
    assert "<|end|>" not in text_of(outputs)


def test_a_preempted_sequence_goes_on_where_it_was() -> None:
    machine = engine()
    for number in (1, 2, 3):
        machine.add(sequence(f"hello {number}", number))
    outputs = machine.step()
    machine.preempt((1, 2, 9))
    outputs += (between := machine.step())
    assert [output.number for output in between] == [3]
    machine.cancel(2)
    machine.preempt(())
    while machine.busy():
        outputs += machine.step()
    own = [[output for output in outputs if output.number == number] for number in (1, 2, 3)]
    assert [text_of(own[0]), text_of(own[2])] == [text_of(run(sequence(f"hello {n}"))[1]) for n in (1, 3)]
    assert [delta.position for delta in deltas_of(own[0])] == list(range(12))
    assert len(own[1]) == 1, "it was cancelled while it was preempted"
    assert machine.gauges().preemptions == 2


def test_max_tokens_limits_the_output() -> None:
    outputs = run(sequence("hello", max_tokens=5))[1]
    assert len(tokens_of(outputs)) == 5
    assert outputs[-1].reason == "length"


def test_the_context_length_limits_the_output() -> None:
    machine = engine(context_length=len(encode("hello")) + 3)
    machine.add(sequence("hello"))
    outputs = [output for _ in range(3) for output in machine.step()]
    assert outputs[-1].reason == "length"
    assert not machine.busy()


@pytest.mark.parametrize("cut", range(13))
def test_a_resumed_sequence_continues_with_the_same_output(cut: int) -> None:
    whole = run(sequence("[[say A 中文 answer!]]", stop=("swer!",)))[1]
    first = whole[: min(cut, len(whole) - 1)]
    rest = run(sequence("[[say A 中文 answer!]]", generated=tokens_of(first), stop=("swer!",)))[1]
    assert text_of(first) + text_of(rest) == text_of(whole) == "A 中文 an"
    assert tokens_of(first) + tokens_of(rest) == tokens_of(whole)
    assert rest[-1].reason == "stop"


def test_a_sequence_that_was_complete_when_it_was_interrupted_ends_at_once() -> None:
    whole = run(sequence("hello"))[1]
    outputs = run(sequence("hello", generated=tokens_of(whole)))[1]
    assert outputs == [Output(1, 12, None, "stop")]


def test_held_back_text_of_an_output_cut_by_length_is_not_lost_on_resumption() -> None:
    whole = run(sequence("[[say abcd]]", stop=("cdX",), max_tokens=4))[1]
    assert text_of(whole) == "abcd"
    outputs = run(sequence("[[say abcd]]", stop=("cdX",), max_tokens=4, generated=tokens_of(whole[:3])))[1]
    assert text_of(outputs) == "cd"


def test_stop_token_ids_end_the_output_and_are_not_shown() -> None:
    outputs = run(sequence("[[say a.b]]", stop_token_ids=(ord("."),)))[1]
    assert text_of(outputs) == "a"
    assert tokens_of(outputs) == (ord("a"), ord("."))
    assert outputs[-1].reason == "stop"


def test_min_tokens_and_ignore_eos_put_the_end_off() -> None:
    assert text_of(run(sequence("[[say a.b.c]]", stop_token_ids=(ord("."),), min_tokens=2))[1]) == "a.b"
    assert len(tokens_of(run(sequence("[[say a]]", ignore_eos=True, max_tokens=6))[1])) == 6


def test_logprobs_run_parallel_to_tokens_only_when_asked_for() -> None:
    assert all(len(delta.logprobs) == len(delta.tokens) for delta in deltas_of(run(sequence("hi", logprobs=True))[1]))
    assert not any(delta.logprobs or delta.pieces for delta in deltas_of(run(sequence("hi"))[1]))


def test_pieces_are_the_bytes_of_the_text() -> None:
    outputs = run(sequence("hi", logprobs=True))[1]
    assert b"".join(piece for delta in deltas_of(outputs) for piece in delta.pieces).decode() == text_of(outputs)


def test_a_cancelled_sequence_is_gone_before_the_next_step() -> None:
    machine = engine()
    machine.add(sequence("one", 1))
    machine.add(sequence("two", 2))
    machine.step()
    machine.cancel(1)
    assert [output.number for output in machine.step()] == [2]
    machine.cancel(2)
    machine.cancel(2)
    assert not machine.busy()
    assert machine.gauges().requests == 0
    assert machine.gauges().cache_usage == 0


def test_directives_for_refusal_and_exhaustion() -> None:
    machine = engine()
    with pytest.raises(RequestRefused):
        machine.add(sequence("please [[refuse]]"))
    assert not machine.busy()
    outputs = run(sequence("[[exhaust at 3]]"))[1]
    assert len(tokens_of(outputs)) == 3
    assert outputs[-1].reason == "exhausted"


def test_a_grammar_is_refused_unless_the_prompt_says_the_output() -> None:
    machine = engine()
    grammar = OutputGrammar("yes")
    with pytest.raises(RequestRefused, match="grammar"):
        machine.add(msgspec.structs.replace(sequence("answer"), grammar=grammar))
    machine.add(msgspec.structs.replace(sequence("answer [[say yes]]"), grammar=grammar))
    assert machine.busy()


def test_a_prompt_without_room_for_an_output_is_refused() -> None:
    with pytest.raises(RequestRefused) as caught:
        engine(context_length=3).add(sequence("abc"))
    problem = caught.value.problem
    assert (problem.kind, problem.excess and problem.excess.limit) == (ProblemKind.CONTEXT_LENGTH, 3)


def test_the_model_can_fail_to_load() -> None:
    with pytest.raises(EngineLoadError):
        engine(path="[[fail load]]")


def test_directives_are_read_with_their_numbers_and_all_else_is_text() -> None:
    asked = parse_directives("a [[tokens 20]] [[tokens 30]] [[crash at x]] [[dance]] [[hang at 4]] [[say [hi]]] z")
    assert asked == Directives(tokens=30, hang_at=4, say="[hi")
    assert parse_directives("[[crash load]]") == Directives(crash_load=True)
    assert parse_directives("[[crash]]") == Directives(crash=True)


@pytest.mark.parametrize("text", ["", "the quick bird sings", "中文 😀\n\n  two  spaces", "<|end|> is text", "_x\x00"])
def test_any_text_encodes_and_comes_back(text: str) -> None:
    assert decode(encode(text)) == text
    assert END not in encode(text)
    assert all(token < len(simulated_vocabulary()) for token in encode(text))

"""Speculation with draft models: the same texts as without, with every field, and what is refused by name."""

import shutil
from pathlib import Path
from typing import Any

import msgspec
import openvino
import pytest

from shared.protocol.errors import RequestRefused
from shared.protocol.request import PromptScoring
from tests.support.engine_driver import TOPICS, Bench
from tests.support.engine_outputs import deltas_of, text_of, tokens_of
from tools.make_tiny_drafts import make
from worker.engine.protocol import EngineLoadError, EngineSequence, OutputGrammar, StepOutput

GRAMMAR = OutputGrammar('root ::= "{" [a-z] "," [a-z]* "}"')


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drafts")
    make(folder)
    return folder


FIELDS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0, "seed": 7},
    {"temperature": 0.6, "seed": 8, "top_p": 0.9},
    {"temperature": 1.3, "seed": 9, "top_k": 20, "min_p": 0.01},
    {"repetition_penalty": 1.3},
    {"logit_bias": ((5, -100.0), (40, 3.0))},
    {"stop": ("ou",)},
    {"min_tokens": 5},
    {"ignore_eos": True},
    {"grammar": GRAMMAR, "temperature": 0.8},
    {"logprobs": True, "top_logprobs": 4},
]


def mixed(bench: Bench) -> list[EngineSequence]:
    """Requests with all kinds of fields, whose prompts have 36 to 700 tokens."""
    return [
        bench.sequence(" and ".join((TOPICS * 5)[at : at + 1 + at * at % 60]), max_tokens=24, **fields)
        for at, fields in enumerate(FIELDS * 2)
    ]


def stories(bench: Bench) -> list[EngineSequence]:
    return [bench.sequence(f"Tell me about {topic}.", ignore_eos=True) for topic in TOPICS]


Outputs = list[list[StepOutput]]


@pytest.fixture(scope="module")
def alone(models: Path) -> tuple[Outputs, Outputs]:
    """What the model makes of :func:`mixed` and :func:`stories` without a draft model. Only one engine reads logits."""
    bench = Bench(models / "target", logits="on")
    return bench.run(mixed(bench)), bench.run(stories(bench))


@pytest.fixture(scope="module", params=["plain", "eagle3"])
def drafting(models: Path, alone: tuple[Outputs, Outputs], request: pytest.FixtureRequest) -> Bench:
    """Prompts of more than 272 tokens are computed in parts, where parts are allowed."""
    return Bench(models / "target", logits="on", draft_model=str(models / request.param), prefill_tokens=32)


def test_a_busy_batch_has_the_texts_of_the_model_alone(alone: tuple[Outputs, Outputs], drafting: Bench) -> None:
    """Greedy and sampled ones: a seed draws the same tokens."""
    expected, made = alone[0], drafting.run(mixed(drafting))
    assert drafting.engine.refused() == []
    assert list(map(text_of, made)) == list(map(text_of, expected))
    for one, other in zip(made, expected, strict=True):
        assert tokens_of(one) == tokens_of(other)
        assert one[-1].reason == other[-1].reason
        logprobs = [logprob for delta in deltas_of(one) for logprob in delta.logprobs]
        assert logprobs == pytest.approx([p for delta in deltas_of(other) for p in delta.logprobs], abs=1e-3)


def test_draft_tokens_are_counted(drafting: Bench) -> None:
    before = drafting.engine.gauges()
    outputs = drafting.one("Tell me about tea.", num_assistant_tokens=3, ignore_eos=True, max_tokens=20)
    after = drafting.engine.gauges()
    accepted, drafted = after.accepted - before.accepted, after.drafted - before.drafted
    assert accepted == 20 - len(outputs) > 0, "each step makes one token by itself"
    assert accepted <= drafted <= 3 * (len(outputs) - 1)


def test_fewer_tokens_are_drafted_for_each_of_many_requests(drafting: Bench) -> None:
    def most(streams: int, **fields: Any) -> int:
        made = drafting.run([drafting.sequence(topic, ignore_eos=True, **fields) for topic in TOPICS[:streams]])
        return max(len(delta.tokens) for outputs in made for delta in deltas_of(outputs[-9:]))

    steps = drafting.engine.gauges().steps
    drafting.run([drafting.sequence(topic, ignore_eos=True, num_assistant_tokens=1) for topic in TOPICS[:2]])
    assert drafting.engine.gauges().steps - steps > 20
    assert most(1) > 2
    assert most(1, num_assistant_tokens=1) == 2


def test_a_stream_continues_elsewhere(alone: tuple[Outputs, Outputs], drafting: Bench) -> None:
    whole = tokens_of(alone[1][0])
    for cut in (1, 7, 39):
        assert tokens_of(drafting.one("Tell me about the sea.", ignore_eos=True, generated=whole[:cut])) == whole[cut:]


def test_cancelled_and_preempted_sequences_disturb_nobody(alone: tuple[Outputs, Outputs], drafting: Bench) -> None:
    own = stories(drafting)
    for sequence in own:
        drafting.engine.add(sequence)
    outputs = [output for _ in range(4) for output in drafting.engine.step()]
    drafting.engine.preempt([sequence.number for sequence in own[::3]])
    for sequence in own[1::3]:
        drafting.engine.cancel(sequence.number)
    outputs += [output for _ in range(3) for output in drafting.engine.step()]
    drafting.engine.preempt(())
    outputs += drafting.finish()
    for at, sequence in enumerate(own):
        if at % 3 != 1:
            assert tokens_of([one for one in outputs if one.number == sequence.number]) == tokens_of(alone[1][at])
    assert drafting.engine.gauges().requests == 0


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"num_assistant_tokens": 17}, "at most 16"),
        ({"max_ngram_size": 2}, "this worker speculates with"),
        ({"beams": 2}, "Beam search"),
        ({"prompt_scoring": PromptScoring(top=1, param="echo")}, "echo"),
        ({"assistant_confidence_threshold": 0.4, "temperature": 1.0}, "assistant_confidence_threshold"),
    ],
)
def test_what_a_draft_model_rules_out_is_refused(drafting: Bench, fields: dict[str, Any], match: str) -> None:
    with pytest.raises(RequestRefused, match=match):
        drafting.one("Hi", **fields)


def test_an_eagle3_head_needs_two_tokens_and_decides_nothing(drafting: Bench) -> None:
    one = msgspec.structs.replace(drafting.sequence("Hi", assistant_confidence_threshold=0.4), prompt=(5,))
    if drafting.engine._speculation == "draft":
        assert tokens_of(drafting.run([one])[0])
        return
    with pytest.raises(RequestRefused, match="assistant_confidence_threshold"):
        drafting.engine.add(one)
    with pytest.raises(RequestRefused, match="A prompt of one token"):
        drafting.engine.add(msgspec.structs.replace(drafting.sequence("Hi"), prompt=(5,)))


def test_other_kinds_are_refused_when_the_model_is_loaded(models: Path, tmp_path: Path) -> None:
    mtp = tmp_path / "mtp"
    shutil.copytree(models / "plain", mtp)
    (mtp / "openvino_model.xml").rename(mtp / "openvino_mtp_model.xml")
    for folder, match in ((models / "dflash", "DFlash"), (mtp, "MTP"), (tmp_path, "no draft model")):
        with pytest.raises(EngineLoadError, match=match):
            Bench(models / "target", draft_model=str(folder))


def test_a_gguf_file_has_no_draft_model(models: Path) -> None:
    with pytest.raises(EngineLoadError, match="a GGUF file has no draft model"):
        Bench(draft_model=str(models / "plain"))


def test_a_head_of_another_model_is_refused_when_it_is_loaded(models: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(models / "eagle3", other)
    graph = openvino.Core().read_model(other / "openvino_model.xml")
    graph.set_rt_info("0, 1, 9", ["hidden_layers_list"])
    openvino.save_model(graph, tmp_path / "saved.xml", compress_to_fp16=False)
    for ending in ("xml", "bin"):
        shutil.move(tmp_path / f"saved.{ending}", other / f"openvino_model.{ending}")
    with pytest.raises(EngineLoadError, match=r"with the draft model .*/other: .*hidden states"):
        Bench(models / "target", draft_model=str(other))

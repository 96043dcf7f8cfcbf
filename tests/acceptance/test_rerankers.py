"""Tiny rerankers of each kind: their values by transformers, formats, parts of documents, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy
import openvino
import pytest

from shared.protocol.errors import RequestRefused
from shared.protocol.request import ChatRequest, Rerank, Sampling
from shared.runtime.settings import EngineSettings
from tests.support.paths import MODELS
from worker.embed.encoder import make_encoder
from worker.embed.engine import EmbeddingEngine
from worker.embed.tokens import open_tokens
from worker.engine.protocol import EngineLoadError, EngineSequence
from worker.model.embedding import kind_of
from worker.model.local import resolve
from worker.model.source import ModelError
from worker.openvino.options import OpenVINOOptions
from worker.prompt.messages import Prepared

TINY = {name: MODELS / f"rerank-{name}" for name in ("bert", "mpnet", "xlm-roberta")}
LIMIT = 32
WORDS = ("red", "river", "in", "a", "new", "world", ".", "blue", "stone", "and", "old", "music")


def engine_of(folder: Path) -> EmbeddingEngine:
    options = OpenVINOOptions.from_settings(EngineSettings(), path=str(folder), context_length=LIMIT)
    return EmbeddingEngine(options, lambda stage: None)


def pairs(folder: Path, queries: Any, documents: Any, **work: Any) -> Prepared:
    kind = Rerank(queries=tuple(queries), param="documents", is_list=True, **work)
    request = ChatRequest(model="m", prompts=tuple(documents), work=kind)
    return open_tokens(str(folder), LIMIT).pairs(request, kind)


def sequence(number: int, made: Prepared) -> EngineSequence:
    return EngineSequence(
        number=number,
        prompt=made.tokens,
        sampling=Sampling(),
        lengths=made.lengths,
        firsts=made.firsts,
        items=made.items,
    )


def computed(engine: EmbeddingEngine, *sequences: EngineSequence) -> dict[int, Any]:
    """The two scores of each document, by the number of the sequence."""
    for one in sequences:
        engine.add(one)
    outputs: dict[int, Any] = {}
    while engine.busy():
        for output in engine.step():
            outputs[output.number] = numpy.frombuffer(output.delta.vectors, "<f4").reshape(output.delta.texts, 2)
    return outputs


def expected(folder: Path) -> Any:
    return json.loads((folder / "scores.json").read_text())


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY["bert"], tmp_path / "copy"))


@pytest.mark.parametrize("name", TINY)
def test_values_and_orders_are_those_of_transformers(name: str) -> None:
    about, engine = expected(TINY[name]), engine_of(TINY[name])
    for query, logits in zip(about["queries"], about["logits"], strict=True):
        found = computed(engine, sequence(1, pairs(TINY[name], [query], about["documents"], chunks=1)))[1]
        numpy.testing.assert_allclose(found[:, 0], logits, atol=1e-5)
        own = 1 / (1 + numpy.exp(-numpy.array(logits))) if name == "bert" else logits
        numpy.testing.assert_allclose(found[:, 1], own, atol=1e-5)
        assert numpy.argsort(-found[:, 1]).tolist() == numpy.argsort(-numpy.array(logits)).tolist()


@pytest.mark.parametrize("name", TINY)
def test_a_pair_has_the_same_score_in_any_company(name: str) -> None:
    about, engine = expected(TINY[name]), engine_of(TINY[name])
    made = [pairs(TINY[name], [query], about["documents"], chunks=1) for query in about["queries"]]
    together = computed(engine, *(sequence(number, one) for number, one in enumerate(made)))
    for number, query in enumerate(about["queries"]):
        for document, score in zip(about["documents"], together[number], strict=True):
            alone = computed(engine, sequence(9, pairs(TINY[name], [query], [document], chunks=1)))
            numpy.testing.assert_allclose(alone[9][0], score, atol=1e-5)


@pytest.mark.parametrize("kind", ["onnx", "ir"])
def test_other_formats_of_a_model_agree(copy: Path, kind: str) -> None:
    about = expected(copy)
    if kind == "ir":
        config = json.loads((copy / "config.json").read_text())
        encoder = make_encoder(copy / "model.safetensors", config, scores=True)
        openvino.save_model(encoder, copy / "openvino_model.xml", compress_to_fp16=False)
    (copy / "model.safetensors").unlink()
    found = computed(engine_of(copy), sequence(1, pairs(copy, about["queries"][:1], about["documents"], chunks=1)))
    numpy.testing.assert_allclose(found[1][:, 0], about["logits"][0], atol=1e-5)


def test_tokens_of_a_pair_have_the_types_of_the_model() -> None:
    made = pairs(TINY["bert"], ["the river"], ["a old window"])
    assert (made.tokens, made.lengths, made.firsts) == ((1, 5, 7, 2, 6, 18, 10, 2), (8,), (4,))
    made = pairs(TINY["xlm-roberta"], ["the river"], ["a"])
    assert (made.tokens, made.lengths, made.firsts) == ((0, 5, 7, 2, 2, 6, 2), (7,), (7,))


def test_each_document_may_have_a_query_of_its_own() -> None:
    about, engine = expected(TINY["bert"]), engine_of(TINY["bert"])
    documents = about["documents"][:3]
    found = computed(engine, sequence(1, pairs(TINY["bert"], about["queries"], documents, chunks=1)))
    numpy.testing.assert_allclose(found[1][:, 0], [about["logits"][i][i] for i in range(3)], atol=1e-5)


def test_a_long_document_is_as_relevant_as_the_best_of_its_parts() -> None:
    engine = engine_of(TINY["bert"])
    text = " ".join(WORDS[place * place % 12] for place in range(90))
    made = pairs(TINY["bert"], ["the river"], ["a", text, "blue"], chunks=100)
    room = LIMIT - 3 - 2
    assert made.items == (0, *[1] * -(-90 // room), 2)
    parts = [" ".join(text.split()[begin : begin + room]) for begin in range(0, 90, room)]
    each = computed(engine, sequence(2, pairs(TINY["bert"], ["the river"], parts)))[2]
    found = computed(engine, sequence(1, made))[1]
    numpy.testing.assert_allclose(found[1], each[numpy.argmax(each[:, 0])], atol=1e-5)
    assert len(found) == 3
    two = computed(engine, sequence(1, pairs(TINY["bert"], ["the river"], [text], chunks=2)))[1]
    numpy.testing.assert_allclose(two[0, 0], each[:2, 0].max(), atol=1e-5)
    cut = computed(engine, sequence(1, pairs(TINY["bert"], ["the river"], [text], chunks=1, document_tokens=3)))[1]
    three = computed(engine, sequence(1, pairs(TINY["bert"], ["the river"], [" ".join(text.split()[:3])])))[1]
    numpy.testing.assert_allclose(cut, three, atol=1e-5)


@pytest.mark.parametrize(
    ("queries", "documents", "work", "words"),
    [
        (["the"], ["a", " "], {"first": 32}, r"documents\[33\].*empty"),
        ([""], ["a"], {}, "'query'.*empty"),
        (["a", " "], ["a", "b"], {"query_param": "text_1"}, r"text_1\[1\].*empty"),
        (["the"], ["red " * 40], {}, r"32 tokens.*documents\[0\].*44 tokens"),
        (["red " * 40], ["the"], {"cut": 4, "chunks": 1}, "4 tokens"),
    ],
)
def test_what_would_be_wrong_is_refused(queries: Any, documents: Any, work: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestRefused, match=words):
        pairs(TINY["bert"], queries, documents, **work)


def test_what_a_model_needs_beyond_this_is_named(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    assert (kind_of(copy), resolve(str(copy)).context_length) == ("rerank", LIMIT)
    bad = config | {"sentence_transformers": {"activation_fn": "torch.nn.Softplus"}}
    (copy / "config.json").write_text(json.dumps(bad))
    with pytest.raises(EngineLoadError, match="activation Softplus"):
        engine_of(copy)
    (copy / "config.json").write_text(json.dumps(config))
    tokenizer = json.loads((copy / "tokenizer.json").read_text())
    (copy / "tokenizer.json").write_text(json.dumps(tokenizer | {"post_processor": None}))
    with pytest.raises(ModelError, match="does not join pairs"):
        pairs(copy, ["a"], ["b"])

"""Tiny embedding models of each kind: their values by sentence-transformers, formats, steps, and what is refused."""

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy
import openvino
import pytest

from shared.protocol.errors import RequestRefused
from shared.protocol.events import Embedded
from shared.protocol.request import ChatRequest, Embed, Sampling, Tokenize
from shared.runtime.settings import EngineSettings
from tests.support.paths import MODELS
from worker.embed.encoder import make_encoder, read_safetensors
from worker.embed.engine import STEP_TOKENS, EmbeddingEngine
from worker.embed.tokens import EmbeddingTokens, open_tokens
from worker.engine.protocol import EngineLoadError, EngineSequence
from worker.model.embedding import MODULES, VectorSettings, kind_of, read_files
from worker.model.identity import model_identity
from worker.model.local import resolve
from worker.model.source import ModelError
from worker.openvino.options import OpenVINOOptions

TINY = {name: MODELS / f"embed-{name}" for name in ("bert", "mpnet", "qwen3", "xlm-roberta")}
LIMIT = 48


def engine_of(folder: Path) -> EmbeddingEngine:
    options = OpenVINOOptions.from_settings(EngineSettings(), path=str(folder), context_length=LIMIT)
    return EmbeddingEngine(options, lambda stage: None)


def sequence(number: int, texts: Iterable[Iterable[int]], dimensions: int = 0) -> EngineSequence:
    rows = [tuple(text) for text in texts]
    ids = tuple(token for row in rows for token in row)
    lengths = tuple(map(len, rows))
    return EngineSequence(number=number, prompt=ids, sampling=Sampling(), lengths=lengths, dimensions=dimensions)


def rows(found: Embedded) -> Any:
    return numpy.frombuffer(found.vectors, "<f4").reshape(found.texts, -1)


def computed(engine: EmbeddingEngine, *sequences: EngineSequence) -> dict[int, Any]:
    for one in sequences:
        engine.add(one)
    outputs: dict[int, Any] = {}
    while engine.busy():
        outputs |= {output.number: rows(output.delta) for output in engine.step()}
    return outputs


def asked(texts: Iterable[str | tuple[int, ...]], **work: Any) -> ChatRequest:
    return ChatRequest(model="m", prompts=tuple(texts), work=Embed(is_list=True, **work))


def tokens_of(tokens: EmbeddingTokens, *texts: str | tuple[int, ...], **work: Any) -> list[Any]:
    request = asked(texts, **work)
    assert isinstance(request.work, Embed)
    return tokens.encode(request, request.work)


@pytest.fixture(scope="module")
def engine() -> EmbeddingEngine:
    return engine_of(TINY["bert"])


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY["bert"], tmp_path / "copy"))


@pytest.mark.parametrize("name", TINY)
def test_values_are_those_of_sentence_transformers(name: str) -> None:
    expected = json.loads((TINY[name] / "vectors.json").read_text())
    tokens, engine = open_tokens(str(TINY[name]), LIMIT), engine_of(TINY[name])
    for prefix, wanted in (("", expected["vectors"]), ("query", expected["queries"])):
        if wanted:
            found = computed(engine, sequence(1, tokens_of(tokens, *expected["texts"], cut=-1, prefix=prefix)))
            numpy.testing.assert_allclose(found[1], wanted, atol=1e-5)


@pytest.mark.parametrize("kind", ["onnx", "ir"])
def test_other_formats_of_a_model_agree(copy: Path, kind: str) -> None:
    expected = json.loads((copy / "vectors.json").read_text())
    if kind == "ir":
        encoder = make_encoder(copy / "model.safetensors", json.loads((copy / "config.json").read_text()))
        openvino.save_model(encoder, copy / "openvino_model.xml", compress_to_fp16=False)
    (copy / "model.safetensors").unlink()
    tokens = open_tokens(str(copy), LIMIT)
    found = computed(engine_of(copy), sequence(1, tokens_of(tokens, *expected["texts"], cut=-1)))
    numpy.testing.assert_allclose(found[1], expected["vectors"], atol=1e-5)


def test_a_text_has_the_same_vector_in_any_company(engine: EmbeddingEngine) -> None:
    texts = [[1, *range(5, 5 + length), 2] for length in (1, 2, 3, 3, 10, 10, 18)] * 9
    together = computed(engine, *(sequence(number, texts[number:]) for number in range(4)))
    for number in range(4):
        for text, vector in zip(texts[number : number + 9], together[number], strict=False):
            numpy.testing.assert_allclose(computed(engine, sequence(9, [text]))[9][0], vector, atol=1e-5)


def test_texts_of_a_length_are_one_step_within_its_tokens(engine: EmbeddingEngine) -> None:
    before = engine.gauges()
    computed(engine, *(sequence(number, [[1] * 8, [1] * 16]) for number in range(40)))
    after = engine.gauges()
    assert after.tokens - before.tokens == 40 * 24
    assert after.steps - before.steps == -(-40 * 8 // STEP_TOKENS) + -(-40 * 16 // STEP_TOKENS)


def test_a_query_waits_for_two_steps_at_most_and_a_document_not_for_ever(engine: EmbeddingEngine) -> None:
    engine.add(sequence(0, [[1] * 16] * 512))
    engine.step()
    engine.add(sequence(1, [[1] * 3]))
    assert 1 in {output.number for _ in range(2) for output in engine.step()}
    number = 2
    while 0 in engine._jobs:
        engine.add(sequence(number, [[1] * 3] * 10))
        engine.step()
        number += 1
        assert number < 200
    computed(engine)


def test_queries_are_computed_in_their_order(engine: EmbeddingEngine) -> None:
    lengths = range(40, 0, -1)
    assert list(computed(engine, *(sequence(41 - length, [[1] * length]) for length in lengths))) == [*range(1, 41)]


def test_preempted_and_cancelled_texts_are_not_computed(engine: EmbeddingEngine) -> None:
    engine.add(sequence(1, [[1] * 4]))
    engine.add(sequence(2, [[1] * 4]))
    engine.preempt([1])
    assert [output.number for output in engine.step()] == [2]
    assert not engine.busy()
    engine.preempt(())
    assert engine.busy()
    engine.cancel(1)
    assert not engine.busy()
    assert engine.step() == []


def test_ids_outside_the_vocabulary_never_reach_the_model(engine: EmbeddingEngine) -> None:
    for bad in (25, -1):
        with pytest.raises(RequestRefused, match="not one of the 25"):
            engine.add(sequence(1, [[1, bad, 2]]))


def test_a_vector_that_is_not_finite_is_refused(copy: Path) -> None:
    file = copy / "2_Dense" / "model.safetensors"
    bias = read_safetensors(file)["linear.bias"]
    file.write_bytes(file.read_bytes().replace(bias.tobytes(), numpy.full_like(bias, numpy.nan).tobytes()))
    engine = engine_of(copy)
    assert computed(engine, sequence(1, [[1, 5, 2]])) == {}
    (refused,) = engine.refused()
    assert (refused.number, "not finite" in refused.problem.message) == (1, True)


def test_matryoshka_models_have_shorter_vectors(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"matryoshka_dimensions": [4, 8]}))
    tokens, engine = open_tokens(str(copy), LIMIT), engine_of(copy)
    (ids,) = tokens_of(tokens, "the river", dimensions=4)
    whole, short = (computed(engine, sequence(1, [ids], width))[1][0] for width in (0, 4))
    numpy.testing.assert_allclose(short, whole[:4] / numpy.linalg.norm(whole[:4]), rtol=1e-5)
    with pytest.raises(RequestRefused, match="of 5 dimensions, but of 4, 8, 12"):
        tokens_of(tokens, "the river", dimensions=5)


@pytest.mark.parametrize(
    ("texts", "work", "words"),
    [
        (("the", " "), {}, r"input\[1\].*empty"),
        (("the", "red " * 50), {"first": 32}, r"48 tokens.*input\[33\].*52 tokens"),
        (((1, 5, 2),), {}, "check_embedding_ctx_length"),
        (((1, 25, 2),), {"own_ids": True}, r"input\[0\]\[1\].*25 is no token"),
        (((),), {"own_ids": True}, "empty"),
        ((tuple([1] * 49),), {"own_ids": True}, "49 tokens"),
    ],
)
def test_what_would_be_wrong_is_refused(texts: Any, work: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestRefused, match=words):
        tokens_of(open_tokens(str(TINY["bert"]), LIMIT), *texts, **work)


def test_tokens_and_their_texts() -> None:
    tokens = open_tokens(str(TINY["bert"]), LIMIT)
    found = tokens.prompt(ChatRequest(model="m", prompts=("the river",)), Tokenize(strings=True, text=True))
    assert (found.tokens, found.strings) == ((1, 5, 7, 2), ("<s>", "the", "river", "</s>"))
    plain = tokens.prompt(ChatRequest(model="m", prompts=((5, 7),)), Tokenize(text=True))
    assert plain.text == "the river"


def test_kinds_are_found_from_files(copy: Path, tmp_path: Path) -> None:
    model = resolve(str(copy))
    assert (model.work, model.context_length) == ("embed", LIMIT)
    assert kind_of(MODELS / "qwen2-byte-level-bpe") == "generate"
    (copy / MODULES).unlink()
    assert kind_of(copy) == "embed"
    assert read_files(copy).pooling == ("mean",)
    assert kind_of(tmp_path) == "generate"


def test_a_decoder_pools_as_its_files_or_its_entry_say(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(TINY["qwen3"], tmp_path / "copy"))
    assert (kind_of(copy), read_files(copy).max_tokens) == ("embed", 48)
    # Positions count from 0, whatever the padding's id is.
    (copy / "sentence_bert_config.json").unlink()
    change("tokenizer_config.json", model_max_length=1000)(copy)
    change("config.json", pad_token_id=24)(copy)
    assert read_files(copy).max_tokens == 70
    # An export without modules is one of text by its architecture, and of vectors by its output.
    (copy / MODULES).unlink()
    assert kind_of(copy) == "embed"
    with pytest.raises(ModelError, match=r"states no pooling.*'pooling'"):
        read_files(copy)
    assert read_files(copy, VectorSettings(pooling="lasttoken")).pooling == ("lasttoken",)


def test_weights_and_modules_are_part_of_the_identity(copy: Path) -> None:
    found = {model_identity(copy)}
    for name in ("model.safetensors", "2_Dense/model.safetensors", "1_Pooling/config.json"):
        (copy / name).write_bytes((copy / name).read_bytes() + b" ")
        found.add(model_identity(copy))
    assert len(found) == 4


def change(name: str, **fields: Any) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | fields))

    return act


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer.json"),
        (change("config.json", model_type="nomic_bert"), "of the kind 'nomic_bert' can't be read"),
        (change("1_Pooling/config.json", include_prompt=False), "leaves prompts out"),
        (change("1_Pooling/config.json", pooling_mode="attention"), "no pooling that is supported"),
        (change("2_Dense/config.json", activation_function="torch.nn.SiLU"), "activation is not supported"),
        (change("config.json", hidden_act="silu"), "silu"),
        (change("config.json", num_hidden_layers=3), "have no encoder.layer.2"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\0" * 20), "not a whole safetensors file"),
        (
            lambda folder: (folder / MODULES).write_text('[{"type": "x.LSTM", "path": "1_Pooling"}]'),
            "module LSTM, which is not supported",
        ),
    ],
)
def test_what_a_model_needs_beyond_this_is_named(copy: Path, break_it: Callable[[Path], None], words: str) -> None:
    break_it(copy)
    with pytest.raises(EngineLoadError, match=words):
        engine_of(copy)

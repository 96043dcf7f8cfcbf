"""A wrong vector never leaves: each answer has the values of its texts alone, as the tokenizer's library reads and cuts
them; all else is refused by its place. A failure names its seed: `VECTOR_FUZZ_SEED=…` repeats the run."""

import base64
import json
import math
import os
import random
from typing import Any

import numpy
import openvino
import pytest
import tokenizers

from api.dialects.base.interface import Dialect, Usage
from api.dialects.openai.embeddings import OpenAIEmbeddings
from api.dialects.rerank import PlainScores
from shared.protocol.errors import RequestRefused
from shared.protocol.events import Embedded
from shared.protocol.request import ChatRequest, Embed, Rerank, Sampling
from shared.runtime.settings import EngineSettings
from tests.support.answers import parts_of
from tests.support.fuzzing import cases
from tests.support.paths import MODELS
from worker.embed.engine import EmbeddingEngine
from worker.embed.tokens import open_tokens
from worker.engine.protocol import EngineSequence
from worker.openvino.options import OpenVINOOptions

SEED = int(os.environ.get("VECTOR_FUZZ_SEED", "20261128"))
WORDS = "the a river stone music window of and is red blue Hello world ?".split(" ")  # noqa: SIM905
ODD = ("", " ", "\n\t", "\u3000", "\u200b", "µ", "日本語", "e\u0301", "👩\u200d💻", "\0", "<pad>", "</s>", "a" * 300)


class Model:
    """A tiny model, and the tokenizer's library beside it."""

    def __init__(self, name: str, limit: int) -> None:
        self.folder, self.limit = MODELS / name, limit
        self.tokens = open_tokens(str(self.folder), limit)
        options = OpenVINOOptions.from_settings(EngineSettings(), path=str(self.folder), context_length=limit)
        self.engine = EmbeddingEngine(options, lambda stage: None)
        self.reference = tokenizers.Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        self.reference.no_padding()

    def read(self, text: str, other: str | None = None, *, cut: int) -> Any:
        """Return the encoding of a text or a pair, cut by the library if ``cut`` is not 0."""
        self.reference.no_truncation()
        if cut:
            self.reference.enable_truncation(min(self.limit, cut) if cut > 0 else self.limit)
        return self.reference.encode(text, other)

    def of(self, number: int, request: ChatRequest) -> EngineSequence:
        if isinstance(work := request.work, Rerank):
            made = self.tokens.pairs(request, work)
            tokens, lengths, firsts, items = made.tokens, made.lengths, made.firsts, made.items
        else:
            assert isinstance(work, Embed)
            rows = self.tokens.encode(request, work)
            tokens, firsts, items = tuple(token for row in rows for token in row), (), ()
            lengths = tuple(map(len, rows))
        return EngineSequence(
            number=number,
            prompt=tokens,
            sampling=Sampling(),
            lengths=lengths,
            firsts=firsts,
            items=items,
            dimensions=work.dimensions,
        )

    def computed(self, *sequences: EngineSequence) -> list[Embedded]:
        found: dict[int, Embedded] = {}
        for sequence in sequences:
            self.engine.add(sequence)
        while self.engine.busy():
            found |= {output.number: output.delta for output in self.engine.step()}
        return [found[sequence.number] for sequence in sequences]

    def alone(self, ids: list[int]) -> Any:
        one = EngineSequence(number=0, prompt=tuple(ids), sampling=Sampling(), lengths=(len(ids),))
        return numpy.frombuffer(self.computed(one)[0].vectors, "<f4")

    def answered(self, dialect: Dialect, body: dict[str, Any], *, right: bool) -> Any:
        """Answer as service and worker do: with values if the body is ``right``, otherwise not at all."""
        problem = None
        try:
            request = dialect.parse(json.dumps(body).encode())
            parts = [self.of(number, part) for number, part in enumerate(parts_of(request), 1)]
        except RequestRefused as refusal:
            problem = refusal.problem
        assert (problem is None) == right, (SEED, problem, body)
        if problem is not None:
            assert problem.param, problem
            return []
        encoder = dialect.render(request, response_id="1", created=1, fingerprint="")
        return json.loads(encoder.vectors(self.computed(*parts), Usage(prompt_tokens=1, completion_tokens=0)))["data"]


def text(chance: random.Random, sizes: tuple[int, ...] = (1, 2, 8, 12, 45, 46, 47, 60)) -> str:
    size = chance.choice(sizes)
    return " ".join(chance.choice(ODD[5:] if chance.random() < 0.1 else WORDS) for _ in range(size))


def texts(chance: random.Random) -> list[str]:
    sizes = chance.choice(((1, 2, 8, 12), (1, 2, 8, 12), (1, 8, 46, 60)))
    found = [text(chance, sizes) for _ in range(chance.choice((1, 2, 5, 33, 70)))]
    if chance.random() < 0.2:
        found[chance.randrange(len(found))] = chance.choice(ODD)
    return found


def ids(chance: random.Random) -> list[int]:
    found = [chance.randrange(25) for _ in range(chance.choice((0, 1, 5, 48, 49)))]
    if found and chance.random() < 0.2:
        found[chance.randrange(len(found))] = chance.choice((25, 30_522, 2**31 - 1))
    return found


def is_text(model: Model, one: str) -> bool:
    return bool(one.strip() and model.reference.encode(one, add_special_tokens=False).ids)


def expected(model: Model, one: Any, body: dict[str, Any]) -> Any:
    """The vector of a text or of ids; None if there is none."""
    cut = body.get("truncate_prompt_tokens", 0)
    limit = min(model.limit, cut) if cut > 0 else model.limit
    if isinstance(one, str):
        if not is_text(model, one):
            return None
        read = model.read(one, cut=0).ids
        if len(read) > limit:
            if not cut or limit < 3:
                return None
            read = model.read(one, cut=cut).ids
    else:
        read = one[:limit] if cut else one
        if not one or len(read) > limit or not all(0 <= token < 25 for token in one):
            return None
    return model.alone(read)


@pytest.fixture(scope="module")
def embedder() -> Model:
    return Model("embed-bert", 48)


@pytest.fixture(scope="module")
def reranker() -> Model:
    return Model("rerank-bert", 32)


@pytest.fixture(scope="module")
def exported() -> Any:
    """The reranker as transformers has exported it."""
    file = MODELS / "rerank-bert" / "onnx" / "model.onnx"
    return openvino.Core().compile_model(file, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})


@pytest.mark.parametrize("number", range(cases(30)))
def test_vectors_are_right_or_refused(embedder: Model, number: int) -> None:
    chance = random.Random(f"{SEED} {number}")
    fields: dict[str, tuple[Any, ...]] = {
        "truncate_prompt_tokens": (-1, -1, 2, 3, 10, 500),
        "dimensions": (12, 12, 5),
        "encoding_format": ("float", "base64"),
    }
    body = {name: chance.choice(values) for name, values in fields.items() if chance.random() < 0.4}
    given: Any = chance.choice((text, texts, texts, ids, lambda _: [ids(chance) for _ in range(3)]))(chance)
    items = given if isinstance(given, list) and given and not isinstance(given[0], int) else [given]
    if not isinstance(items[0], str) and chance.random() < 0.8:
        body["add_special_tokens"] = False
    body |= {"model": "m", "input": given}
    wanted = [expected(embedder, one, body) for one in items]
    own = isinstance(items[0], str) or "add_special_tokens" in body
    right = own and body.get("dimensions") != 5 and all(vector is not None for vector in wanted)
    found = embedder.answered(OpenAIEmbeddings(), body, right=right)
    for item, vector in zip(found, wanted if right else (), strict=True):
        value = item["embedding"]
        value = numpy.frombuffer(base64.b64decode(value), "<f4") if isinstance(value, str) else value
        numpy.testing.assert_allclose(value, vector, atol=1e-5)


@pytest.mark.parametrize("number", range(cases(30)))
def test_scores_are_right_or_refused(reranker: Model, exported: Any, number: int) -> None:
    chance = random.Random(f"{SEED} {number}")
    cut = chance.choice((0, -1, -1, 4, 5, 20))
    documents = texts(chance)
    queries = [text(chance, (1, 5)) for _ in documents] if chance.random() < 0.3 else [text(chance)]
    pairs = [*zip(queries * len(documents) if len(queries) == 1 else queries, documents, strict=True)]
    body = {"model": "m", "text_1": queries, "text_2": documents} | ({"truncate_prompt_tokens": cut} if cut else {})
    limit = min(reranker.limit, cut) if cut > 0 else reranker.limit
    right = all(is_text(reranker, one) for pair in pairs for one in pair)
    lengths = [len(reranker.read(*pair, cut=0).ids) for pair in pairs]
    right = right and (bool(cut and limit >= 5) or max(lengths) <= limit)
    found = reranker.answered(PlainScores(), body, right=right)
    for item, pair in zip(found, pairs if right else (), strict=True):
        read = reranker.read(*pair, cut=cut)
        ids, ones, types = (numpy.array([row]) for row in (read.ids, read.attention_mask, read.type_ids))
        logit = exported({"input_ids": ids, "attention_mask": ones, "token_type_ids": types})[0].item()
        numpy.testing.assert_allclose(item["score"], 1 / (1 + math.exp(-logit)), atol=1e-5)

"""What an entry of a catalogue sets for a model of vectors, by functions, and by a node with a real client.

LangChain's client by default sends token ids of ``cl100k_base``. Its file is not here: tests have a vocabulary of bytes
and words in its form.
"""

import json
import os
import shutil
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy
import pytest
import tiktoken

from shared.protocol.errors import RequestRefused
from shared.protocol.request import ChatRequest, Embed, Rerank, Sampling
from shared.runtime.settings import EngineSettings
from tests.support.fleet import ONE_THREAD, PATIENT, Fleet, fleet
from tests.support.paths import MODELS
from tests.support.processes import family
from worker.embed.engine import EmbeddingEngine
from worker.embed.tokens import open_tokens
from worker.engine.protocol import EngineSequence
from worker.model.embedding import VectorSettings
from worker.model.local import resolve
from worker.model.request_defaults import VARIABLE
from worker.model.source import ModelError
from worker.openvino.options import OpenVINOOptions

BERT, RERANKER = MODELS / "embed-bert", MODELS / "rerank-bert"
RANKS = {
    piece: rank
    for rank, piece in enumerate([*(bytes([byte]) for byte in range(256)), *b"th he in ri er st on".split()])
}
CL100K = tiktoken.Encoding("cl100k_base", pat_str=r"\s?\S+|\s+", mergeable_ranks=RANKS, special_tokens={})
TEXTS = ["the river", "Hello world !", "music of the old window"]


def write_vocabulary(folder: Path) -> None:
    lines = (b"%b %d\n" % (b64encode(piece), rank) for piece, rank in RANKS.items())
    (folder / "cl100k_base.tiktoken").write_bytes(b"".join(lines))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(BERT, tmp_path / "copy"))


def ids(folder: Path, text: str | tuple[int, ...], given: VectorSettings, **work: Any) -> list[int]:
    kind = Embed(**work)
    (found,) = open_tokens(str(folder), 48, given).encode(ChatRequest(model="m", prompts=(text,), work=kind), kind)
    return [*found]


def vector(folder: Path, given: VectorSettings) -> Any:
    options = OpenVINOOptions.from_settings(EngineSettings(), path=str(folder), context_length=48, vectors=given)
    engine = EmbeddingEngine(options, lambda stage: None)
    tokens = (1, 5, 7, 2)
    engine.add(EngineSequence(number=1, prompt=tokens, sampling=Sampling(), lengths=(4,)))
    (output,) = engine.step()
    return numpy.frombuffer(output.delta.vectors, "<f4")


def test_pooling_and_normalisation(copy: Path) -> None:
    plain = vector(copy, VectorSettings(normalize=False))
    own = vector(copy, VectorSettings())
    numpy.testing.assert_allclose(own, plain / numpy.linalg.norm(plain), atol=1e-6)
    mean = vector(copy, VectorSettings(pooling="mean"))
    assert abs(mean - own).max() > 1e-3
    about = json.loads((copy / "1_Pooling" / "config.json").read_text())
    (copy / "1_Pooling" / "config.json").write_text(json.dumps(about | {"pooling_mode": "mean"}))
    numpy.testing.assert_allclose(vector(copy, VectorSettings()), mean, atol=1e-6)


def test_prefixes_and_lengths() -> None:
    assert ids(BERT, "river", VectorSettings(query_prefix="old "), prefix="query") == [1, 18, 7, 2]
    assert ids(BERT, "river", VectorSettings(document_prefix=""), prefix="document") == [1, 7, 2]
    with pytest.raises(RequestRefused, match="5 tokens"):
        ids(BERT, "river " * 6, VectorSettings(max_tokens=5))
    short = VectorSettings(max_tokens=5, truncate=True)
    assert ids(BERT, "river " * 6, short) == ids(BERT, (1, *[7] * 3, 2, 2), short, own_ids=True) == [1, 7, 7, 7, 2]
    kind = Rerank(queries=("the",))
    given = VectorSettings(query_prefix="old ", document_prefix="red ")
    for settings, text, expected in ((given, "river", (1, 18, 5, 2, 16, 7, 2)), (short, "river " * 6, (1, 5, 2, 7, 2))):
        request = ChatRequest(model="m", prompts=(text,), work=kind)
        assert open_tokens(str(RERANKER), 32, settings).pairs(request, kind).tokens == expected


def test_a_longer_limit_than_the_models_own_is_at_most_its_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, expected in ((60, 60), (600, 70)):
        monkeypatch.setenv(VARIABLE, json.dumps({"max_tokens": given}))
        assert resolve(str(BERT)).context_length == expected


def test_token_arrays(copy: Path) -> None:
    foreign = tuple(CL100K.encode("the river"))
    assert foreign != (5, 7)
    assert ids(copy, (1, 5, 7, 2), VectorSettings(token_arrays="accept")) == [1, 5, 7, 2]
    with pytest.raises(ModelError, match=r"cl100k_base\.tiktoken"):
        ids(copy, foreign, VectorSettings(token_arrays="cl100k"))
    write_vocabulary(copy)
    given = VectorSettings(token_arrays="cl100k")
    assert ids(copy, foreign, given) == ids(copy, "the river", given)
    assert ids(copy, (1, 5, 7, 2), given, own_ids=True) == [1, 5, 7, 2]
    # Clients cut texts between tokens, also inside of a character.
    cut = tuple(CL100K.encode("the river é")[:-1])
    assert ids(copy, cut, given) == ids(copy, "the river", given)
    with pytest.raises(RequestRefused, match="999 is no token of cl100k_base"):
        ids(copy, (999,), given)


@pytest.mark.parametrize(
    ("source", "given", "words"),
    [
        ("default", {"pooling": "cls", "max_tokens": 9}, "generates text, and has no pooling"),
        (str(RERANKER), {"normalize": True}, "'pooling' and 'normalize' are of models with vectors"),
    ],
)
def test_settings_of_other_models_are_refused(
    source: str, given: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, json.dumps(given))
    with pytest.raises(ModelError, match=words):
        resolve(source)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Fleet]:
    folder = Path(shutil.copytree(BERT, tmp_path / "model"))
    write_vocabulary(folder)
    with fleet(tmp_path, lease=PATIENT) as running:
        running.api("--queue-timeout", "60", "--worker-grace", "1")
        entry = f'[models.tiny]\nsource = "{folder}"\ntoken_arrays = "cl100k"\nidle = true\nnormalize = false\n'
        (tmp_path / "models.toml").write_text(entry + 'keep = "1h"\nmemory = "60MB"\n')
        running.start(
            *("node", "--models", str(tmp_path / "models.toml"), "--memory", "1GB"),
            *("--plugin-config", json.dumps(ONE_THREAD)),
        )
        running.until(lambda: running.status("/v1/models/tiny") == 200, "the node to register")
        yield running


def test_langchains_default_works_beside_chats(served: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    from langchain_openai import OpenAIEmbeddings

    # Otherwise, tiktoken would download it.
    monkeypatch.setitem(tiktoken.registry.ENCODINGS, "cl100k_base", CL100K)
    with httpx.Client() as connection:
        base: dict[str, Any] = {"base_url": f"http://127.0.0.1:{served.port}/v1", "api_key": "none", "model": "tiny"}
        by_default = OpenAIEmbeddings(http_client=connection, **base).embed_documents(TEXTS)
        strings = OpenAIEmbeddings(http_client=connection, check_embedding_ctx_length=False, **base)
        expected = strings.embed_documents(TEXTS)
    # LangChain returns vectors of length 1, whatever the model's own is.
    for one, other in zip(by_default, expected, strict=True):
        unit, same = (numpy.array(row) / numpy.linalg.norm(row) for row in (one, other))
        numpy.testing.assert_allclose(unit, same, atol=1e-5)
        assert numpy.linalg.norm(other) > 1.01
    (worker,) = served.workers("serving")
    threads = [
        int(task.name)
        for pid in family(worker["pid"])
        if "worker.engine.child" in Path(f"/proc/{pid}/cmdline").read_text()
        for task in Path(f"/proc/{pid}/task").iterdir()
    ]
    assert os.SCHED_IDLE in {os.sched_getscheduler(thread) for thread in threads}

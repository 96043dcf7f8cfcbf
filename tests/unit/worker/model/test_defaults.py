"""Whose default holds for a field that the client leaves open."""

import json
from pathlib import Path

import pytest

from shared.protocol.request import Sampling, fill_in
from tests.support.gguf_files import gguf_bytes
from worker.model import local
from worker.model.generation_config import default_sampling, end_tokens, stop_strings
from worker.model.local import resolve

INTERFACE = Sampling(temperature=1.0, top_p=1.0, top_k=40)


def test_the_client_comes_first_then_the_model_then_the_interface() -> None:
    filled = fill_in(fill_in(Sampling(temperature=0.0), Sampling(temperature=0.5, top_p=0.9)), INTERFACE)
    assert filled == Sampling(temperature=0.0, top_p=0.9, top_k=40)


def test_the_default_model_has_the_sampling_that_its_authors_recommend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "default.gguf"
    file.write_bytes(
        gguf_bytes({"general.architecture": "llama", "llama.context_length": 64, "tokenizer.ggml.model": "gpt2"})
    )
    monkeypatch.setattr(local, "default_model", lambda: file)
    own = resolve("default").sampling
    assert own == resolve("name=default").sampling == Sampling(temperature=0.2, top_p=0.9)
    # A client's word comes before the model's, and the model's before the interface's.
    assert fill_in(fill_in(Sampling(), own), INTERFACE) == Sampling(temperature=0.2, top_p=0.9, top_k=40)
    assert fill_in(Sampling(temperature=1.0, top_p=1.0), own) == Sampling(temperature=1.0, top_p=1.0)
    assert resolve(str(file)).sampling == Sampling()


def test_what_the_interface_leaves_open_stays_open() -> None:
    sampling = Sampling(max_tokens=5, stop=("x",))
    assert fill_in(sampling, Sampling()) == sampling


@pytest.mark.parametrize(
    ("config", "stated"),
    [
        ({"do_sample": True, "temperature": 0.6, "top_k": 20, "eos_token_id": 2}, Sampling(temperature=0.6, top_k=20)),
        ({"temperature": 0.6, "top_p": 0.95}, Sampling(temperature=0.0, top_p=0.95)),
        ({"do_sample": False, "repetition_penalty": 1.1}, Sampling(temperature=0.0, repetition_penalty=1.1)),
        ({"do_sample": True, "top_k": None}, Sampling(temperature=1.0)),
        ({"bos_token_id": 1, "transformers_version": "5"}, Sampling()),
        ({"top_k": "many", "top_p": 0.5}, Sampling(top_p=0.5)),
        ({"do_sample": True, "temperature": 0.0, "top_k": -1}, Sampling(temperature=0.0, top_k=0)),
        ({"do_sample": True, "top_p": 3, "repetition_penalty": 0}, Sampling(temperature=1.0)),
        ({"max_length": 4096, "max_new_tokens": 512}, Sampling(max_length=4096, max_tokens=512)),
        (["temperature"], Sampling()),
    ],
)
def test_a_folders_generation_config_gives_the_models_defaults(
    tmp_path: Path, config: object, stated: Sampling
) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    assert default_sampling(tmp_path) == stated


@pytest.mark.parametrize(
    ("generation", "config", "ids"),
    [
        ({"eos_token_id": [2, 3]}, {"eos_token_id": 4}, {2, 3}),
        ({"eos_token_id": 2}, {}, {2}),
        ({"transformers_version": "5"}, {"eos_token_id": [4, 5]}, {4, 5}),
        (None, {"text_config": {"eos_token_id": [6]}}, {6}),
        (None, {"eos_token_id": None}, set()),
    ],
)
def test_either_file_states_the_end_tokens(tmp_path: Path, generation: object, config: object, ids: set[int]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert end_tokens(tmp_path) == ids


@pytest.mark.parametrize(("stated", "texts"), [("x", ("x",)), (["x", "", 3, "yz"], ("x", "yz")), (None, ())])
def test_the_stop_strings_of_a_model(tmp_path: Path, stated: object, texts: tuple[str, ...]) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({"stop_strings": stated}))
    assert stop_strings(tmp_path) == texts


def test_a_model_without_a_readable_config_sets_nothing(tmp_path: Path) -> None:
    assert default_sampling(tmp_path) == Sampling()
    (tmp_path / "generation_config.json").write_text("{not json")
    assert default_sampling(tmp_path) == Sampling()
    gguf = tmp_path / "model.gguf"
    gguf.write_bytes(b"GGUF")
    assert default_sampling(gguf) == Sampling()

"""What ``[NAME=]SOURCE`` means, and under which name it is served."""

from pathlib import Path

import pytest

from worker.model.source import DEFAULT_NAME, ModelError, ModelSource, check_name, parse_source


def test_default_has_its_name_unless_another_is_given() -> None:
    assert parse_source("default") == ModelSource(kind="default", name=DEFAULT_NAME, location="default")
    assert parse_source("chat=default").name == "chat"


@pytest.mark.parametrize(
    ("filename", "name"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct"),
        ("qwen2.5-0.5b-instruct-q4_k_m.gguf", "qwen2.5-0.5b-instruct"),
        ("Qwen3-8B-UD-Q4_K_XL.gguf", "Qwen3-8B"),
        ("Phi-4-IQ2_XXS.gguf", "Phi-4"),
        ("gemma-2b.F16.gguf", "gemma-2b"),
        ("model-bf16.gguf", "model"),
        ("llama-7B.gguf", "llama-7B"),
        ("my model (1).gguf", "my-model-1"),
    ],
)
def test_a_file_is_served_under_its_stem_without_quantisation(tmp_path: Path, filename: str, name: str) -> None:
    (tmp_path / filename).touch()
    source = parse_source(str(tmp_path / filename))
    assert (source.kind, source.name, source.location) == ("file", name, str(tmp_path / filename))


def test_a_folder_is_served_under_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "TinyLlama-ov"
    folder.mkdir()
    assert parse_source(str(folder)).name == "TinyLlama-ov"
    monkeypatch.chdir(folder)
    assert parse_source(".") == ModelSource(kind="folder", name="TinyLlama-ov", location=str(folder))


def test_a_linked_file_keeps_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "blob").touch()
    (tmp_path / "model.gguf").symlink_to(tmp_path / "blob")
    assert parse_source(str(tmp_path / "model.gguf")).location == str(tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("text", "name", "repository", "revision", "file"),
    [
        ("org/name", "org/name", "org/name", None, None),
        ("org/name@v1.0", "org/name", "org/name", "v1.0", None),
        ("org/name@refs/pr/3:sub/a.gguf", "org/name", "org/name", "refs/pr/3", "sub/a.gguf"),
        ("short=org/name:a.Q4_0.gguf", "short", "org/name", None, "a.Q4_0.gguf"),
    ],
)
def test_hub_ids_are_taken_apart(text: str, name: str, repository: str, revision: str | None, file: str | None) -> None:
    assert parse_source(text) == ModelSource(kind="hub", name=name, location=repository, revision=revision, file=file)


def test_an_existing_path_wins_over_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert parse_source("org/name").kind == "folder"


def test_a_path_may_hold_an_equals_sign(tmp_path: Path) -> None:
    folder = tmp_path / "run=3"
    folder.mkdir()
    assert parse_source(str(folder)).location == str(folder)
    assert parse_source(f"chat={folder}") == ModelSource(kind="folder", name="chat", location=str(folder))


@pytest.mark.parametrize(
    "text", ["", "nowhere", "./missing.gguf", "data/missing.gguf", "/no/such", "a/b/c", "x=", "org/"]
)
def test_what_is_not_found_says_what_can_be_given(text: str) -> None:
    with pytest.raises(ModelError, match=r"was not found: .*org/name"):
        parse_source(text)


@pytest.mark.parametrize(
    "name", ["", "../x", "a/../b", "/a", "a//b", "a/", ".a", "a b", "a\n", "ä", "x" * 97, "a?b", "a%2e"]
)
def test_names_that_clients_cannot_send_are_refused(name: str) -> None:
    with pytest.raises(ModelError, match="NAME=SOURCE"):
        check_name(name)


@pytest.mark.parametrize("name", ["a", "gpt-4o", "org/name", "qwen2.5:0.5b", "a_b@1", "x" * 96])
def test_usual_names_are_served(name: str) -> None:
    assert check_name(name) == name


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(ModelError, match="NAME=SOURCE"):
        parse_source("=default")

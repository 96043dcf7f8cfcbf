"""Models from the Hugging Face hub: huggingface_hub's own code against a stand-in server."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.huggingface_server import COMMIT, HubServer
from tests.support.eventually import PATIENCE
from tests.support.gguf_files import gguf_bytes, llama_parts

GGUF = gguf_bytes({"general.architecture": "llama", "llama.context_length": 4096, "tokenizer.ggml.model": "gpt2"})
IR_FILES = ("openvino_model.xml", "openvino_model.bin", "openvino_tokenizer.xml", "openvino_detokenizer.xml")
REPOSITORIES = {
    "org/single": {"tiny-Q8_0.gguf": GGUF, "README.md": b"text"},
    "org/several": {"a.gguf": GGUF, "sub/b.gguf": GGUF},
    "org/split": {f"q4/tiny-{number:05}-of-00002.gguf": part for number, part in enumerate(llama_parts(2), 1)},
    "org/part": {"tiny-00001-of-00002.gguf": llama_parts(2)[0]},
    "org/torch": {"pytorch_model.bin": b"weights", "config.json": b"{}"},
    "org/ir": {name: name.encode() for name in IR_FILES}
    | {"config.json": b'{"max_position_embeddings": 2048}', "model.safetensors": b"not needed"},
    "org/gated": {"tiny.gguf": GGUF},
}

# huggingface_hub reads its environment when it is imported, so each case gets a process of its own.
PROGRAM = """
import json, sys
from worker.model import local
for call, *arguments in json.loads(sys.argv[1]):
    try:
        result = getattr(local, call)(*arguments)
    except local.ModelError as error:
        print(json.dumps({"error": str(error)}))
    else:
        if call == "list_models":
            result = [[model.name, model.source, str(model.path)] for model in result]
        elif call == "resolve":
            result = [result.name, str(result.path), result.kind, result.context_length]
        print(json.dumps({"result": result}, default=str))
"""


class Machine:
    """A machine with a hub cache of its own that sees the stand-in hub."""

    def __init__(self, server: HubServer, cache: Path) -> None:
        self.server = server
        self.cache = cache
        self.progress = ""

    def call(self, *call: str, **environment: str) -> dict[str, Any]:
        """Call a function of ``worker.model.local`` with its arguments; return its result or its error."""
        (result,) = self.calls(call, **environment)
        return result

    def calls(self, *calls: tuple[str, ...], **environment: str) -> list[dict[str, Any]]:
        """The same for several calls in one process, which takes a second to start."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps(calls)],
            env={**inherited, "HF_ENDPOINT": self.server.endpoint, "HF_HOME": str(self.cache), **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        self.progress = run.stderr
        return [json.loads(line) for line in run.stdout.splitlines()[-len(calls) :]]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    server = HubServer(REPOSITORIES, gated=frozenset({"org/gated"}), token="hf_secret")
    yield Machine(server, tmp_path)
    server.close()


def test_a_single_gguf_file_is_downloaded_once_and_served_offline(machine: Machine) -> None:
    first, _ = machine.calls(("resolve", "org/single"), ("resolve", f"org/single@{COMMIT}"))
    name, path, kind, context_length = first["result"]
    assert (name, kind, context_length) == ("org/single", "gguf", 4096)
    assert Path(path).is_relative_to(machine.cache)
    assert Path(path).read_bytes() == GGUF
    assert machine.server.downloads == {"tiny-Q8_0.gguf": 1}

    machine.server.close()
    resolved, found = machine.calls(("resolve", "org/single"), ("path", "org/single"))
    assert resolved["result"][1] == found["result"] == path
    assert machine.call("resolve", "org/single", HF_HUB_OFFLINE="1")["result"][1] == path


def test_an_ir_repository_is_downloaded_without_other_formats_and_with_progress(machine: Machine) -> None:
    pulled, resolved = machine.calls(("pull", "org/ir"), ("resolve", "chat=org/ir"))
    path = pulled["result"]
    assert {file.name for file in Path(path).iterdir()} == {*IR_FILES, "config.json"}
    assert "Fetching" in machine.progress
    assert resolved["result"] == ["chat", path, "openvino", 2048]


def test_one_of_several_gguf_files_has_to_be_named(machine: Machine) -> None:
    unnamed, named = machine.calls(("pull", "org/several"), ("pull", "org/several:sub/b.gguf"))
    assert "name one" in unnamed["error"]
    assert "a.gguf, sub/b.gguf" in unnamed["error"]
    assert named["result"].endswith("sub/b.gguf")
    assert machine.server.downloads == {"sub/b.gguf": 1}


def test_a_split_file_is_one_model(machine: Machine) -> None:
    source = "org/split:q4/tiny-00001-of-00002.gguf"
    resolved, listed, removed, left = machine.calls(
        ("resolve", "org/split"), ("list_models",), ("remove", source), ("list_models",)
    )
    name, path, kind, context = resolved["result"]
    assert (name, kind, context) == ("org/split", "gguf", 2048)
    assert path.endswith("q4/tiny-00001-of-00002.gguf")
    assert machine.server.downloads == {f"q4/tiny-0000{number}-of-00002.gguf": 1 for number in (1, 2)}
    assert [entry[1] for entry in listed["result"] if entry[1] != "default"] == [source]
    assert removed["result"] == path
    assert not [*machine.cache.rglob("*.gguf")]
    assert [entry[1] for entry in left["result"] if entry[1] != "default"] == []


def test_a_missing_part_of_a_split_file_is_named(machine: Machine) -> None:
    assert "tiny-00002-of-00002.gguf missing" in machine.call("pull", "org/part")["error"]
    assert machine.server.downloads == {}


def test_the_cache_lists_what_can_be_served(machine: Machine) -> None:
    empty, ir, gguf, listed = machine.calls(
        ("list_models",), ("pull", "org/ir"), ("pull", "org/several:a.gguf"), ("list_models",)
    )
    assert all(source == "default" for _, source, _ in empty["result"])
    assert [entry for entry in listed["result"] if entry[1] != "default"] == [
        ["org/ir", "org/ir", ir["result"]],
        ["org/several", "org/several:a.gguf", gguf["result"]],
    ]


def test_models_are_removed_without_others_of_their_repository(machine: Machine) -> None:
    machine.calls(("pull", "org/ir"), ("pull", "org/several:a.gguf"), ("pull", "org/several:sub/b.gguf"))
    removed, *_, listed, own = machine.calls(
        ("remove", "org/several:a.gguf"), ("remove", "org/ir"), ("list_models",), ("remove", "default")
    )
    assert not Path(removed["result"]).exists()
    assert [source for _, source, _ in listed["result"] if source != "default"] == ["org/several:sub/b.gguf"]
    assert "was not downloaded" in own["error"]
    machine.calls(("remove", "org/several:sub/b.gguf"))
    assert not [file for file in machine.cache.rglob("blobs/*") if file.is_file()]


def test_what_can_not_be_had_is_explained(machine: Machine) -> None:
    reasons = {
        ("pull", "org/missing"): "no repository org/missing",
        ("pull", "org/single@nowhere"): "no revision 'nowhere'",
        ("pull", "org/single:other.gguf"): "no file 'other.gguf'. Its GGUF files: tiny-Q8_0.gguf",
        ("pull", "org/torch"): "neither openvino_model.xml nor a GGUF file",
        ("pull", "org/gated"): "accept its terms",
        ("path", "org/single"): "vinoqueue model pull org/single",
    }
    for failed, reason in zip(machine.calls(*reasons), reasons.values(), strict=True):
        assert reason in failed["error"]


def test_the_token_opens_gated_repositories(machine: Machine) -> None:
    assert machine.call("pull", "org/gated", HF_TOKEN="hf_secret")["result"].endswith("tiny.gguf")


def test_a_file_that_arrives_damaged_is_removed_and_downloaded_again(machine: Machine) -> None:
    machine.server.digests["tiny-Q8_0.gguf"] = "0" * 64
    assert "arrived damaged" in machine.call("pull", "org/single")["error"]
    machine.server.digests["tiny-Q8_0.gguf"] = hashlib.sha256(GGUF).hexdigest()
    assert Path(machine.call("pull", "org/single")["result"]).read_bytes() == GGUF


def test_a_model_larger_than_the_disk_is_not_downloaded(machine: Machine) -> None:
    machine.server.sizes["tiny-Q8_0.gguf"] = 2**60
    error = machine.call("pull", "org/single")["error"]
    assert "org/single needs 1152921504.6 GB more" in error
    assert machine.server.downloads == {}


def test_no_network_and_nothing_cached_says_what_to_check(machine: Machine) -> None:
    machine.server.close()
    error = machine.call("pull", "org/single")["error"]
    assert "org/single can't be fetched" in error
    assert "HF_ENDPOINT" in error

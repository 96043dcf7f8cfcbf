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
from tests.support.gguf_files import gguf_bytes

GGUF = gguf_bytes({"general.architecture": "llama", "llama.context_length": 4096, "tokenizer.ggml.model": "gpt2"})
IR_FILES = ("openvino_model.xml", "openvino_model.bin", "openvino_tokenizer.xml", "openvino_detokenizer.xml")
REPOSITORIES = {
    "org/single": {"tiny-Q8_0.gguf": GGUF, "README.md": b"text"},
    "org/several": {"a.gguf": GGUF, "sub/b.gguf": GGUF},
    "org/torch": {"pytorch_model.bin": b"weights", "config.json": b"{}"},
    "org/ir": {name: name.encode() for name in IR_FILES}
    | {"config.json": b'{"max_position_embeddings": 2048}', "model.safetensors": b"not needed"},
    "org/gated": {"tiny.gguf": GGUF},
}

# huggingface_hub reads its environment when it is imported, so each case gets a process of its own.
PROGRAM = """
import json, sys
from worker.model import local
call, *arguments = sys.argv[1:]
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

    def call(self, function: str, *arguments: str, **environment: str) -> dict[str, Any]:
        """Call a function of ``worker.model.local``; return its result or its error."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM, function, *arguments],
            env={**inherited, "HF_ENDPOINT": self.server.endpoint, "HF_HOME": str(self.cache), **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        self.progress = run.stderr
        result: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
        return result


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    server = HubServer(REPOSITORIES, gated=frozenset({"org/gated"}), token="hf_secret")
    yield Machine(server, tmp_path)
    server.close()


def test_a_single_gguf_file_is_downloaded_once_and_served_offline(machine: Machine) -> None:
    name, path, kind, context_length = machine.call("resolve", "org/single")["result"]
    assert (name, kind, context_length) == ("org/single", "gguf", 4096)
    assert Path(path).is_relative_to(machine.cache)
    assert Path(path).read_bytes() == GGUF
    machine.call("resolve", f"org/single@{COMMIT}")
    assert machine.server.downloads == {"tiny-Q8_0.gguf": 1}

    machine.server.close()
    assert machine.call("resolve", "org/single")["result"][1] == path
    assert machine.call("resolve", "org/single", HF_HUB_OFFLINE="1")["result"][1] == path
    assert machine.call("path", "org/single")["result"] == path


def test_an_ir_repository_is_downloaded_without_other_formats_and_with_progress(machine: Machine) -> None:
    path = machine.call("pull", "org/ir")["result"]
    assert {file.name for file in Path(path).iterdir()} == {*IR_FILES, "config.json"}
    assert "Fetching" in machine.progress
    assert machine.call("resolve", "chat=org/ir")["result"] == ["chat", path, "openvino", 2048]


def test_one_of_several_gguf_files_has_to_be_named(machine: Machine) -> None:
    error = machine.call("pull", "org/several")["error"]
    assert "name one" in error
    assert "a.gguf, sub/b.gguf" in error
    assert machine.server.downloads == {}
    assert machine.call("pull", "org/several:sub/b.gguf")["result"].endswith("sub/b.gguf")
    assert machine.server.downloads == {"sub/b.gguf": 1}


def test_the_cache_lists_what_can_be_served(machine: Machine) -> None:
    paths = [machine.call("pull", source)["result"] for source in ("org/ir", "org/several:a.gguf")]
    listed = machine.call("list_models")["result"]
    assert [entry for entry in listed if entry[1] != "default"] == [
        ["org/ir", "org/ir", paths[0]],
        ["org/several", "org/several:a.gguf", paths[1]],
    ]


def test_an_empty_cache_lists_no_hub_models(machine: Machine) -> None:
    assert all(source == "default" for _, source, _ in machine.call("list_models")["result"])


@pytest.mark.parametrize(
    ("function", "source", "reason"),
    [
        ("pull", "org/missing", "no repository org/missing"),
        ("pull", "org/single@nowhere", "no revision 'nowhere'"),
        ("pull", "org/single:other.gguf", "no file 'other.gguf'. Its GGUF files: tiny-Q8_0.gguf"),
        ("pull", "org/torch", "neither openvino_model.xml nor a GGUF file"),
        ("pull", "org/gated", "accept its terms"),
        ("path", "org/single", "vinoqueue model pull org/single"),
    ],
)
def test_what_can_not_be_had_is_explained(machine: Machine, function: str, source: str, reason: str) -> None:
    assert reason in machine.call(function, source)["error"]


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
    assert "org/single needs 1073741824.0 GB more" in error
    assert machine.server.downloads == {}


def test_no_network_and_nothing_cached_says_what_to_check(machine: Machine) -> None:
    machine.server.close()
    error = machine.call("pull", "org/single")["error"]
    assert "org/single can't be fetched" in error
    assert "HF_ENDPOINT" in error

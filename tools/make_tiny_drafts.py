"""Makes a tiny target and the drafts of each kind that OpenVINO GenAI speculates with, as graphs with random weights.

The target nearly always writes the same token after the same token, so a draft that knows only the last token is often
right, and the target's attention makes it sometimes wrong. Tokenizer and template are those of a tiny model::

    python -m tools.make_tiny_drafts FOLDER
"""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy
import openvino
from openvino import opset13 as opset

LIKE = Path(__file__).parents[1] / "tests" / "models" / "qwen2-byte-level-bpe"
HIDDEN, HEADS, CONTEXT, SEED = 32, 2, 2048, 53
LAYERS = (0, 1, 2)
MIXED = 0.35
"""Share of attention and MLP in a layer's output."""

Node: TypeAlias = Any
"""A node of a graph. OpenVINO's operations have no types."""


class Graph:
    """A causal language model in the form that OpenVINO GenAI makes a paged one of."""

    def __init__(self, vocabulary: int, seed: int) -> None:
        self.vocabulary = vocabulary
        self._random = numpy.random.default_rng(seed)
        self.inputs = {
            name: self.input(name, openvino.Type.i64, [-1, -1])
            for name in ("input_ids", "attention_mask", "position_ids")
        }
        self.inputs["beam_idx"] = self.input("beam_idx", openvino.Type.i32, [-1])
        self._states: list[Any] = []

    @staticmethod
    def input(name: str, kind: openvino.Type, shape: list[int]) -> Node:
        """Return an input of this name."""
        node = opset.parameter(shape, kind, name=name)
        node.output(0).set_names({name})
        return node

    def weights(self, *shape: int, name: str, scale: float = 1.0) -> Node:
        """Return random weights."""
        values = self._random.normal(0, scale, shape).astype(numpy.float32)
        return opset.constant(values, name=name)

    def embed(self) -> Node:
        """Return the embeddings of the tokens, with a trace of their positions."""
        table = opset.constant(embeddings(self.vocabulary), name="model.embed_tokens.weight")
        tokens = opset.gather(table, self.inputs["input_ids"], integer(0))
        places = self.weights(CONTEXT, HIDDEN, name="positions", scale=0.05)
        return opset.add(tokens, opset.gather(places, self.inputs["position_ids"], integer(0)))

    def layer(self, name: str, hidden: Node, attended: Node | None = None, mixed: float = MIXED) -> Node:
        """Return the output of a layer; ``attended`` is what it attends to, if not ``hidden``."""
        source = hidden if attended is None else attended
        width = int(source.output(0).get_partial_shape()[2].get_length())
        query, key, value = (
            opset.transpose(
                opset.reshape(
                    opset.matmul(source, self.weights(width, HIDDEN, name=f"{name}/{part}", scale=0.3), False, False),
                    integers(0, 0, HEADS, HIDDEN // HEADS),
                    True,
                ),
                integers(0, 2, 1, 3),
            )
            for part in "qkv"
        )
        key, value = (self._remember(f"{name}/{part}", now) for part, now in (("key", key), ("value", value)))
        mask = opset.unsqueeze(opset.convert(self.inputs["attention_mask"], openvino.Type.boolean), integers(1, 2))
        read = opset.scaled_dot_product_attention(query, key, value, mask, causal=True)
        read = opset.reshape(opset.transpose(read, integers(0, 2, 1, 3)), integers(0, 0, HIDDEN), True)
        hidden = opset.add(
            hidden, opset.matmul(read, self.weights(HIDDEN, HIDDEN, name=f"{name}/o", scale=mixed / 6), False, False)
        )
        gate, up = (
            opset.matmul(hidden, self.weights(HIDDEN, HIDDEN, name=f"{name}/{part}", scale=0.2), False, False)
            for part in ("gate", "up")
        )
        inner = opset.multiply(opset.swish(gate), up)
        outer = opset.matmul(inner, self.weights(HIDDEN, HIDDEN, name=f"{name}/down", scale=mixed / 6), False, False)
        return opset.add(hidden, outer, name=f"__module.model.{name}/aten::add/Add_1")

    def _remember(self, name: str, now: Node) -> Node:
        shape = [-1, HEADS, -1, HIDDEN // HEADS]
        batch = opset.gather(opset.shape_of(self.inputs["input_ids"]), integers(0), integer(0))
        empty = opset.broadcast(
            opset.constant(numpy.float32(0)), opset.concat([batch, integers(HEADS, 0, HIDDEN // HEADS)], 0)
        )
        before = opset.read_value(empty, name, openvino.Type.f32, openvino.PartialShape(shape))
        chosen = opset.gather(before, self.inputs["beam_idx"], integer(0))
        together = opset.concat([chosen, now], 2)
        self._states.append(opset.assign(together, name))
        return together

    def project(self, hidden: Node) -> Node:
        """Return the logits."""
        matrix = opset.constant(successors(self.vocabulary), name="lm_head.weight")
        return opset.matmul(hidden, matrix, False, True)

    def model(self, *others: Node, **outputs: Node) -> openvino.Model:
        """Return the model with these outputs by name; ``others`` are more inputs."""
        results = []
        for name, node in outputs.items():
            results.append(opset.result(node, name=name))
            results[-1].output(0).set_names({name})
        return openvino.Model(results, self._states, [*self.inputs.values(), *others], "tiny")


def integer(value: int) -> Node:
    """Return a constant scalar."""
    return opset.constant(numpy.array(value, numpy.int64))


def integers(*values: int) -> Node:
    """Return a constant vector."""
    return opset.constant(numpy.array(values, numpy.int64))


def embeddings(vocabulary: int) -> Any:
    """Return the embedding of each token, of length 1."""
    table = numpy.random.default_rng(SEED).normal(0, 1, (vocabulary, HIDDEN))
    return (table / numpy.linalg.norm(table, axis=1, keepdims=True)).astype(numpy.float32)


def successors(vocabulary: int) -> Any:
    """Return the projection: the row of a token is ten times the embedding of the token before it."""
    order = numpy.random.default_rng(SEED + 1).permutation(vocabulary)
    return (10 * embeddings(vocabulary)[order]).astype(numpy.float32)


def target(vocabulary: int) -> openvino.Model:
    """Return the target: three layers."""
    graph = Graph(vocabulary, SEED)
    hidden = graph.embed()
    for number in LAYERS:
        hidden = graph.layer(f"layers.{number}", hidden)
    return graph.model(logits=graph.project(hidden))


def plain(vocabulary: int) -> openvino.Model:
    """Return a draft that is a language model: one layer."""
    graph = Graph(vocabulary, SEED + 2)
    return graph.model(logits=graph.project(graph.layer("layers.0", graph.embed(), mixed=0.1)))


def eagle3(vocabulary: int) -> openvino.Model:
    """Return an EAGLE-3 head, which reads three layers of the target."""
    graph = Graph(vocabulary, SEED + 3)
    states = graph.input("hidden_states", openvino.Type.f32, [-1, -1, -1])
    fused = opset.matmul(states, graph.weights(HIDDEN, 3 * HIDDEN, name="fc", scale=0.01), False, True)
    tokens = graph.embed()
    attended = opset.concat([tokens, fused], 2)
    hidden = graph.layer("midlayer", opset.add(tokens, fused), attended, mixed=0.1)
    model = graph.model(states, logits=graph.project(hidden))
    model.set_rt_info("True", ["eagle3_mode"])
    model.set_rt_info(", ".join(map(str, LAYERS)), ["hidden_layers_list"])
    return model


def dflash(vocabulary: int) -> openvino.Model:
    """Return a DFlash draft, which guesses a block of tokens at once."""
    graph = Graph(vocabulary, SEED + 4)
    states = graph.input("hidden_states", openvino.Type.f32, [-1, -1, 3 * HIDDEN])
    fused = opset.matmul(states, graph.weights(HIDDEN, 3 * HIDDEN, name="fc", scale=0.01), False, True)
    context = opset.reduce_mean(fused, integers(1), True)
    mask = opset.reduce_mean(opset.convert(graph.inputs["attention_mask"], openvino.Type.f32), integers(1), True)
    places = opset.reduce_mean(opset.convert(graph.inputs["position_ids"], openvino.Type.f32), integers(1), True)
    trace = opset.multiply(opset.unsqueeze(opset.add(mask, places), integers(2)), opset.constant(numpy.float32(1e-6)))
    table = opset.constant(embeddings(vocabulary), name="model.embed_tokens.weight")
    tokens = opset.gather(table, graph.inputs["input_ids"], integer(0))
    del graph.inputs["beam_idx"]
    model = graph.model(states, logits=graph.project(opset.add(opset.add(tokens, context), trace)))
    model.set_rt_info("True", ["dflash_mode"])
    model.set_rt_info("0", ["dflash", "mask_token_id"])
    model.set_rt_info(",".join(map(str, LAYERS)), ["dflash", "target_layer_ids"])
    return model


KINDS: dict[str, Callable[[int], openvino.Model]] = {
    "target": target,
    "plain": plain,
    "eagle3": eagle3,
    "dflash": dflash,
}


def make(folder: Path) -> None:
    """Write the target and a draft of each kind into folders in ``folder``, named by :data:`KINDS`."""
    config = json.loads((LIKE / "config.json").read_text("utf-8"))
    for kind, build in KINDS.items():
        shutil.copytree(LIKE, folder / kind)
        openvino.save_model(build(config["vocab_size"]), folder / kind / "openvino_model.xml", compress_to_fp16=False)


if __name__ == "__main__":
    make(Path(sys.argv[1]))

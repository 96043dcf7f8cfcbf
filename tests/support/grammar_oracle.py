"""The real grammar compiler as an oracle: which texts a grammar accepts, and random texts that it generates.

A stub model wants to generate one given text, which it gets as its prompt. Where the grammar masks the wanted token,
another one comes out; so the grammar accepts exactly the texts that come out unchanged.
"""

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy
import openvino
import openvino_genai
from openvino import opset13 as opset
from openvino.op.util import Variable, VariableInfo

from worker.engine.protocol import OutputGrammar
from worker.openvino.grammar_compiler import structured_output_config, stub_input, stub_pipeline
from worker.openvino.model_tokenizer import open_tokenizer as open_model_tokenizer
from worker.openvino.vocabulary import open_tokenizer

TINY_VOCABULARY = Path(__file__).parents[1] / "models" / "qwen2-byte-level-bpe"
"""A tokenizer of 423 tokens that can spell every text. It loads in a second."""

_WANTED = 100.0
"""Logit of the wanted token. It is finite, so the grammar can still exclude the token."""
_CLOSING = 75.0
"""Logit of closing tokens in random texts, which would seldom end otherwise."""
_MORE_TOKENS = 60
"""Maximum number of additional tokens of a text that differs from the wanted one."""


class GrammarOracle:
    """The grammar compiler on the vocabulary of one tokenizer."""

    def __init__(self, path: Path) -> None:
        """Load the tokenizer of the GGUF file or IR folder at ``path``."""
        tokenizer, vocabulary = open_tokenizer(path)
        self._path = path
        self._end = tokenizer.get_eos_token_id()
        self._pieces = [vocabulary.piece(token) for token in range(len(vocabulary))]
        self._tokens = {
            piece: token for token, piece in enumerate(self._pieces) if piece and token not in vocabulary.special
        }
        self._longest = max(map(len, self._tokens))
        self._temperature = _WANTED / math.log(len(vocabulary))
        closing = numpy.zeros(len(vocabulary), numpy.float32)
        closing[[self._tokens[piece] for piece in (b'"', b"]", b"}")]] = 1
        self._pipeline = stub_pipeline(_model(closing), tokenizer)

    def accepts(self, grammar: OutputGrammar, text: str) -> bool:
        """Whether ``text`` is a complete text of the grammar's language."""
        return self._generate(grammar, text, openvino_genai.GenerationConfig(do_sample=False), more=0) == text

    def own_tokens(self, text: str) -> list[int]:
        """Return the tokenizer's own tokens of ``text`` at the start of a line."""
        (tokens,) = open_model_tokenizer(self._path, "").encode([f"\n{text}"])
        while b"".join(map(self._pieces.__getitem__, tokens)) != text.encode():
            del tokens[0]
        return tokens

    def writes(self, grammar: OutputGrammar, tokens: Sequence[int]) -> bool:
        """Whether the grammar allows a text in exactly these ``tokens``."""
        config = openvino_genai.GenerationConfig(do_sample=False)
        return self._written(grammar, [*tokens, self._end], config, more=0) == [*tokens, self._end]

    def nearest(self, grammar: OutputGrammar, text: str) -> str | None:
        """Return ``text`` if the grammar accepts it, else a text with the same start; None if that has no end."""
        return self._generate(grammar, text, openvino_genai.GenerationConfig(do_sample=False))

    def random(self, grammar: OutputGrammar, seed: int) -> str | None:
        """Return a random text of the grammar's language; None if it became too long.

        Raises :class:`UnicodeDecodeError` if it is not UTF-8.
        """
        config = openvino_genai.GenerationConfig(do_sample=True, temperature=self._temperature, rng_seed=seed)
        return self._generate(grammar, "", config)

    def can_spell(self, text: str) -> bool:
        """Whether the vocabulary has tokens for all of ``text``."""
        return all(bytes([byte]) in self._tokens for byte in text.encode())

    def _generate(
        self, grammar: OutputGrammar, text: str, config: openvino_genai.GenerationConfig, more: int = _MORE_TOKENS
    ) -> str | None:
        *tokens, last = self._written(grammar, [*self._spelled(text.encode()), self._end], config, more)
        return b"".join(self._pieces[token] for token in tokens).decode() if last == self._end else None

    def _written(
        self, grammar: OutputGrammar, wanted: list[int], config: openvino_genai.GenerationConfig, more: int
    ) -> list[int]:
        config.structured_output_config = structured_output_config(grammar)
        config.max_new_tokens = len(wanted) + more
        prompt = openvino.Tensor(numpy.array([wanted], numpy.int64))
        return list(self._pipeline.generate(prompt, config).tokens[0])

    def _spelled(self, text: bytes) -> list[int]:
        """Return the tokens of ``text``, each the longest that fits. A tokenizer might normalise the text."""
        tokens = []
        at = 0
        while at < len(text):
            fitting = (text[at : at + size] for size in range(self._longest, 0, -1))
            piece = next(piece for piece in fitting if piece in self._tokens)
            tokens.append(self._tokens[piece])
            at += len(piece)
        return tokens


class Texts:
    """The language of one grammar, by the tiny vocabulary: ``text in Texts(ebnf)``."""

    def __init__(self, ebnf: str) -> None:
        self._grammar = OutputGrammar(ebnf)

    def __contains__(self, text: str) -> bool:
        return tiny_oracle().accepts(self._grammar, text)


@cache
def tiny_oracle() -> GrammarOracle:
    """Return the oracle on the tiny vocabulary."""
    return GrammarOracle(TINY_VOCABULARY)


def _model(closing: numpy.typing.NDArray[numpy.float32]) -> openvino.Model:
    """Build the stub model: step ``n`` wants token ``n`` of the prompt, and its last token from there on."""
    ids = stub_input("input_ids", [-1, -1], openvino.Type.i64)
    mask = stub_input("attention_mask", [-1, -1], openvino.Type.i64)
    beams = stub_input("beam_idx", [-1], openvino.Type.i32)
    info = VariableInfo()
    info.data_shape, info.data_type, info.variable_id = openvino.PartialShape([-1, -1]), openvino.Type.i32, "prompt"
    state = Variable(info)
    prompt = opset.read_value(opset.convert(ids, "i32"), state)
    at = opset.minimum(opset.subtract(_length(mask), _length(prompt)), opset.subtract(_length(prompt), _integer(1)))
    token = opset.gather(prompt, opset.unsqueeze(at, _integer(0)), _integer(1))
    size = _integer(len(closing))
    wanted = opset.one_hot(token, size, _number(_WANTED), _number(0), -1)
    logits = opset.maximum(wanted, opset.constant(closing * _CLOSING))
    logits.output(0).set_names({"logits"})
    return openvino.Model([opset.result(logits)], [opset.assign(prompt, state)], [ids, mask, beams], "wanted")


def _length(tensor: openvino.Node) -> openvino.Node:
    """Return the number of tokens in a tensor [batch, tokens]."""
    return opset.gather(opset.shape_of(tensor), _integer(1), _integer(0))


def _integer(value: int) -> openvino.Node:
    return opset.constant(numpy.int64(value))


def _number(value: float) -> openvino.Node:
    return opset.constant(numpy.float32(value))

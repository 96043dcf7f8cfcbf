"""Prompts of token ids for a pipeline that accepts only text.

A vision-language model's pipeline accepts a prompt as text with image tags, and encodes it itself. Here, each token id
is spelled as one character, and the pipeline's tokenizer is rewritten to encode that character as the same token. Text
from clients thus can't form special tokens or image tags, and an interrupted sequence continues after exactly its own
tokens.
"""

from collections.abc import Iterable
from itertools import accumulate

import numpy
import openvino
from openvino import opset13 as opset

from worker.engine.interface import EngineLoadError

_FIRST = 0x10000
_LAST = 0x10FFFF
"""The characters that take four bytes in UTF-8, over a million."""

_SPLITTER = "SpecialTokensSplit"
_PATTERN = 5
"""Input of the splitter: a regular expression for special tokens."""

_TOKENIZER = "BPETokenizer"
_BEGINS, _ENDS, _TEXTS, _IDS = 14, 15, 16, 17
"""Inputs of the tokenizer: begin and end of each special token's text, all texts, and the tokens' ids."""

_COMBINER = "CombineSegments"


def spell(tokens: Iterable[int]) -> str:
    """Return the text for ``tokens``."""
    return "".join(chr(_FIRST + token) for token in tokens)


def accept_spelled(tokenizer: openvino.Model, vocabulary_size: int) -> None:
    """Rewrite ``tokenizer`` to encode a spelled token as this token, and other text as before; it adds no tokens.

    The pipeline writes special tokens around an image, and the placeholders for its embeddings, as their usual text.
    Raises :class:`EngineLoadError` if the tokenizer has another structure.
    """
    nodes = {node.get_type_name(): node for node in tokenizer.get_ordered_ops()}
    splitter, encoder = nodes.get(_SPLITTER), nodes.get(_TOKENIZER)
    pattern = _data(splitter, _PATTERN).tobytes() if splitter is not None else b""
    if splitter is None or encoder is None or encoder.get_input_size() <= _IDS or not pattern.startswith(b"("):
        raise EngineLoadError(
            "a vision-language model is served only with a BPE tokenizer with special tokens; export the model again "
            "with openvino-tokenizers 2026 or newer, from a fast tokenizer"
        )
    if vocabulary_size > _LAST - _FIRST + 1:
        raise EngineLoadError(f"a vocabulary of {vocabulary_size} tokens is too large for a vision-language model")
    spelled = f"([{chr(_FIRST)}-{chr(_LAST)}]|".encode() + pattern[1:]
    _replace(splitter, _PATTERN, numpy.frombuffer(spelled, numpy.uint8))
    begins, ends, texts = (_data(encoder, at) for at in (_BEGINS, _ENDS, _TEXTS))
    joined = texts.tobytes()
    pieces = [joined[begin:end] for begin, end in zip(begins, ends, strict=True)]
    pieces += [spell([token]).encode() for token in range(vocabulary_size)]
    bounds = numpy.array([0, *accumulate(map(len, pieces))], numpy.int32)
    ids = [*_data(encoder, _IDS).tolist(), *range(vocabulary_size)]
    _replace(encoder, _BEGINS, bounds[:-1])
    _replace(encoder, _ENDS, bounds[1:])
    _replace(encoder, _TEXTS, numpy.frombuffer(b"".join(pieces), numpy.uint8))
    _replace(encoder, _IDS, numpy.array(ids, numpy.int32))
    if combiner := nodes.get(_COMBINER):
        empty_added_segments(combiner)


def empty_added_segments(combiner: openvino.Node) -> None:
    """Empty the constant segments that ``combiner`` joins: the tokens that a tokenizer adds at the ends of a text."""
    # Each segment has three inputs: its begins, its ends and its tokens.
    for first in range(0, combiner.get_input_size() - 1, 3):
        if combiner.input_value(first + 2).get_node().get_type_name() == "Constant":
            combiner.input(first + 1).replace_source_output(combiner.input_value(first))


def _data(node: openvino.Node, at: int) -> numpy.typing.NDArray[numpy.generic]:
    data: numpy.typing.NDArray[numpy.generic] = node.input_value(at).get_node().get_data()
    return data


def _replace(node: openvino.Node, at: int, values: numpy.typing.NDArray[numpy.generic]) -> None:
    node.input(at).replace_source_output(opset.constant(values).output(0))

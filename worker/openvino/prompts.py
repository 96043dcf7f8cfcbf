"""Adds prompts to a pipeline: token ids, or spelled tokens and images for a vision-language model.

A vision-language model's pipeline accepts a prompt as text with image tags, and encodes it itself. Here, each token id
is spelled as one character, and the pipeline's tokenizer is rewritten to encode that character as the same token. Text
from clients thus can't form special tokens or image tags, and an interrupted sequence continues after exactly its own
tokens.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate

import msgspec
import numpy
import openvino
import openvino_genai
from openvino import opset13 as opset

from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from worker.engine.protocol import Ending, EngineLoadError, PlacedImage, StepOutput
from worker.openvino.stateful import Handle, Pipeline

_TAG = "<ov_genai_image_{}>"
"""OpenVINO GenAI's generic tag for an image, which it replaces with the model's."""

_TOO_LONG = ("'max_length' must be greater", "max_length should be bigger")
"""Parts of the pipelines' errors for a prompt that is longer than ``max_length``: of the batched and the stateful one.
"""


def add_prompt(
    pipeline: Pipeline,
    request_id: int,
    tokens: Sequence[int],
    config: openvino_genai.GenerationConfig,
    images: Sequence[PlacedImage] = (),
    *,
    spelled: bool,
) -> Handle:
    """Add a request to ``pipeline``. ``spelled`` is set for a vision-language model.

    Encoding images takes as long as a step or longer and holds the GIL. Raises :class:`RuntimeError` if the pipeline
    refuses the request.
    """
    if not spelled:
        return pipeline.add_request(request_id, openvino.Tensor(numpy.array([tokens], numpy.int64)), config)
    config.apply_chat_template = False
    return pipeline.add_request(request_id, _text(tokens, images), [_tensor(image) for image in images], config)


def is_too_long(error: str) -> bool:
    """Return whether the pipeline's ``error`` is that a prompt is too long."""
    return any(text in error for text in _TOO_LONG)


def refusal_of(error: str, context_length: int) -> RequestRefused:
    """Return the refusal of a prompt for the pipeline's ``error``."""
    if not is_too_long(error):
        return refuse(ProblemKind.INVALID, f"The engine refuses the request: {error}")
    return refuse(
        ProblemKind.CONTEXT_LENGTH,
        f"This model's maximum context length is {context_length} tokens. However, your messages and their images "
        "resulted in more. Please reduce the length of the messages, or the number of images.",
        param="messages",
    )


def _text(tokens: Sequence[int], images: Sequence[PlacedImage]) -> str:
    parts = []
    start = 0
    for index, image in enumerate(images):
        parts += [spell(tokens[start : image.at]), _TAG.format(index)]
        start = image.at
    return "".join([*parts, spell(tokens[start:])])


def _tensor(image: PlacedImage) -> openvino.Tensor:
    pixels = numpy.frombuffer(image.pixels, numpy.uint8)
    return openvino.Tensor(pixels.reshape(1, image.height, image.width, 3))


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


def counted(handle: Handle, generated: int, output: StepOutput) -> StepOutput:
    """Return the last output of a sequence with images, with the number of prompt tokens, which the pipeline reports
    when the request has ended, or in the step after it was cancelled.

    ``generated`` is the number of tokens of an earlier attempt that the pipeline got as part of the prompt.
    """
    try:
        tokens = handle.get_perf_metrics().get_num_input_tokens() - generated
    except RuntimeError:
        tokens = 0  # the pipeline never ran the request
    if not tokens:
        return output
    ending = msgspec.structs.replace(output.ending or Ending(), prompt_tokens=tokens)
    return msgspec.structs.replace(output, ending=ending)

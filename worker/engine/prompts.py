"""Adds prompts to a pipeline: token ids, or spelled tokens and images for a vision-language model."""

from collections.abc import Sequence

import numpy
import openvino
import openvino_genai
from openvino_genai.py_openvino_genai import GenerationHandle

from shared.protocol.errors import Problem, ProblemKind
from worker.engine.interface import EngineRefusal, PlacedImage
from worker.engine.spelled_tokens import spell

_TAG = "<ov_genai_image_{}>"
"""OpenVINO GenAI's generic tag for an image, which it replaces with the model's."""

_TOO_LONG = "'max_length' must be greater"
"""Part of the pipeline's error for a prompt that is longer than ``max_length``."""


def add_prompt(
    pipeline: openvino_genai.ContinuousBatchingPipeline,
    request_id: int,
    tokens: Sequence[int],
    config: openvino_genai.GenerationConfig,
    images: Sequence[PlacedImage] = (),
    *,
    spelled: bool,
) -> GenerationHandle:
    """Add a request to ``pipeline``. ``spelled`` is set for a vision-language model.

    Encoding images takes as long as a step or longer and holds the GIL. Raises :class:`RuntimeError` if the pipeline
    refuses the request.
    """
    if not spelled:
        return pipeline.add_request(request_id, openvino.Tensor(numpy.array([tokens], numpy.int64)), config)
    config.apply_chat_template = False
    return pipeline.add_request(request_id, _text(tokens, images), [_tensor(image) for image in images], config)


def refusal_of(error: str, context_length: int) -> EngineRefusal:
    """Return the refusal of a prompt for the pipeline's ``error``."""
    problem = Problem(kind=ProblemKind.INVALID, message=f"The engine refuses the request: {error}")
    if _TOO_LONG in error:
        problem = Problem(
            kind=ProblemKind.CONTEXT_LENGTH,
            message=f"This model's maximum context length is {context_length} tokens. However, your messages and their "
            "images resulted in more. Please reduce the length of the messages, or the number of images.",
            param="messages",
        )
    return EngineRefusal(problem)


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

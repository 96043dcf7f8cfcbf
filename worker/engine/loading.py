"""Loads the pipeline of a model, with a logits tap where that is possible, and warms it up."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import openvino_genai

from worker.engine.interface import EngineLoadError
from worker.engine.logits.availability import tapped_model
from worker.engine.logits.rows import RowLost
from worker.engine.options import EngineOptions
from worker.engine.pipeline import load_pipeline
from worker.engine.speculation import speculation_of
from worker.engine.text import Vocabulary
from worker.engine.warm_up import warm_up
from worker.model.files import model_bytes

logger = logging.getLogger(__name__)

WARM_UP_ID = 0
"""Id of the warm-up's request."""


class Loaded(NamedTuple):
    """A pipeline that is ready. ``cache_tokens`` is the KV cache's capacity, ``logits_width`` the number of logits
    per token; 0 if they can't be read."""

    pipeline: openvino_genai.ContinuousBatchingPipeline
    vocabulary: Vocabulary
    cache_tokens: int
    logits_width: int


def load(options: EngineOptions, served: Path, progress: Callable[[str], None]) -> Loaded:
    """Load the model at ``served`` and run one request. Raises :class:`EngineLoadError`.

    If the logits tap does not pass its test, the model is loaded without one, unless ``options.logits`` is on.
    """
    progress(f"loading {served.name} ({model_bytes(served) / 1e6:.0f} MB) on {options.device}")
    tapped = tapped_model(options, served)
    if tapped is not None:
        try:
            return _load(options, served, tapped, progress)
        except (EngineLoadError, RowLost) as error:
            if options.logits == "on":
                raise EngineLoadError(f"the model can't be loaded with access to its logits: {error}") from error
            logger.warning("top_logprobs and logit_bias are not served: %s", error)
    return _load(options, served, None, progress)


def _load(options: EngineOptions, served: Path, tapped: Path | None, progress: Callable[[str], None]) -> Loaded:
    pipeline, vocabulary = load_pipeline(options, served, tapped)
    progress("warming up")
    speculation = speculation_of(options)
    cache_tokens, width = warm_up(pipeline, WARM_UP_ID, len(vocabulary), speculation, tapped=tapped is not None)
    return Loaded(pipeline, vocabulary, cache_tokens, width)

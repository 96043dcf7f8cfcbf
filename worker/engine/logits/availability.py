"""Decides whether the engine loads its model with a logits tap."""

import logging
from pathlib import Path

from worker.engine.interface import EngineLoadError
from worker.engine.logits.folder import tapped_folder
from worker.engine.logits.graph import NoTap
from worker.engine.options import EngineOptions
from worker.engine.speculation import speculation_of
from worker.model.devices import device_kind
from worker.model.files import SMALL_MODEL, model_bytes
from worker.model.local import ModelError
from worker.model.vision import sees_images

logger = logging.getLogger(__name__)


def tapped_model(options: EngineOptions, served: Path) -> Path | None:
    """Return the folder of ``served``, the model that is about to be loaded, with a logits tap; None: without one.

    Raises :class:`EngineLoadError` if ``options.logits`` is on and the model can't be tapped.
    """
    if options.logits == "off":
        return None
    obstacle = _obstacle(options, served)
    if obstacle is None:
        try:
            return tapped_folder(served, options.context_length)
        except (ModelError, NoTap, OSError, RuntimeError) as error:
            obstacle = str(error)
            logger.warning("fields that need logits are not served: %s", obstacle)
    if options.logits == "on":
        raise EngineLoadError(f"--logits on is not possible: {obstacle}")
    return None


def _obstacle(options: EngineOptions, served: Path) -> str | None:
    if sees_images(served):
        return "it has not been tried with vision-language models"
    if device_kind(options.device) != "CPU":
        return f"it has not been tried on {options.device}"
    if speculation_of(options) != "none":
        return "it can't be combined with speculative decoding"
    if options.logits == "auto" and served.is_file() and model_bytes(served) > SMALL_MODEL:
        return "a copy of the GGUF file as an OpenVINO IR is needed, which '--logits on' makes"
    return None

"""The fingerprint of an engine: a digest of everything that its answers depend on."""

import hashlib
from pathlib import Path

import openvino
import openvino_genai

from worker.engine.options import EngineOptions
from worker.engine.pipeline import device_properties
from worker.model.identity import model_identity


def fingerprint_of(path: Path, options: EngineOptions, *, converted: bool) -> str:
    """Return the fingerprint of the model at ``path``; ``converted``: it is served with int8 weights made from it."""
    parts = (
        openvino.__version__,
        openvino_genai.__version__,
        model_identity(path),
        options.device,
        options.precision,
        str(sorted(device_properties(path, options).items())),
        "int8" if converted else "original",
        options.chat_template,
    )
    return "fp_" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:10]

"""Recognises vision-language models: IR folders with a vision encoder, as ``optimum-cli export openvino`` writes."""

from pathlib import Path

LANGUAGE_MODEL = "openvino_language_model.xml"

_VISION_ENCODER = "openvino_vision_embeddings_model.xml"

VISION_FILES = (
    LANGUAGE_MODEL,
    "openvino_language_model.bin",
    "openvino_text_embeddings_model.xml",
    "openvino_text_embeddings_model.bin",
    _VISION_ENCODER,
    "openvino_vision_embeddings_model.bin",
)
"""Files that every vision-language model has, in addition to its tokenizer. Some architectures have more."""


def sees_images(path: Path) -> bool:
    """Return whether the model at ``path`` takes images."""
    return (path / _VISION_ENCODER).is_file()

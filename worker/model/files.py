"""What the files of a model say: configurations, size, images and recommended properties."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from shared.runtime.plugin_config import PluginValue
from worker.model.devices import device_kinds
from worker.model.source import ModelError
from worker.model.split import parts

LANGUAGE_MODEL = "openvino_language_model.xml"
LANGUAGE_WEIGHTS = "openvino_language_model.bin"

_VISION_ENCODER = "openvino_vision_embeddings_model.xml"

VISION_FILES = (
    LANGUAGE_MODEL,
    LANGUAGE_WEIGHTS,
    "openvino_text_embeddings_model.xml",
    "openvino_text_embeddings_model.bin",
    _VISION_ENCODER,
    "openvino_vision_embeddings_model.bin",
)
"""Files that every vision-language model has, in addition to its tokenizer. Some architectures have more."""


NO_LIMIT = 1 << 30
"""Tokenizer configurations state 1e30 for an unlimited length."""

_MAX_CONFIG = 1 << 24


def read_config(file: Path) -> dict[str, Any]:
    """Return the JSON object in ``file``; an empty one if there is no such file. Raises :class:`ModelError`."""
    if not file.is_file():
        return {}
    if file.stat().st_size > _MAX_CONFIG:
        raise ModelError(f"{file} is larger than {_MAX_CONFIG} bytes, which no model configuration is.")
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except (msgspec.DecodeError, OSError) as error:
        raise ModelError(f"{file} can't be read as a JSON object: {error}") from error


def sees_images(path: Path) -> bool:
    """Return whether the model at ``path`` takes images."""
    return (path / _VISION_ENCODER).is_file()


Properties = Mapping[str, Mapping[str, PluginValue]]
"""OpenVINO's properties by kind of device (:func:`~worker.model.devices.device_kinds`)."""

_PROPERTIES = "vinoqueue.json"
"""File in an IR folder with the :data:`Properties` recommended for its weights."""

SMALL_MODEL = 256_000_000
"""Maximum size in bytes of a GGUF file of which the weight cache holds other forms by default."""


PROCESSES = 700 * 2**20
"""Bytes that the processes of a worker take in addition to the weights, before they are measured."""


def model_bytes(path: Path) -> int:
    """Return the size in bytes of the model's file with all its parts, or of all files in its folder."""
    return sum(file.stat().st_size for file in (path.iterdir() if path.is_dir() else parts(path)) if file.is_file())


def write_properties(folder: Path, properties: Properties) -> None:
    """Write the recommended OpenVINO properties per device kind into an IR folder; without any, remove the file.

    If a device is of several kinds, properties of the more specific kind have precedence.
    """
    file = folder / _PROPERTIES
    file.unlink(missing_ok=True)
    if properties:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(properties)) + b"\n")


def read_properties(path: Path, device: str) -> dict[str, PluginValue]:
    """Return the properties written by :func:`write_properties` for ``device``; none for a GGUF file.

    Raises :class:`OSError` when the file can't be read and :class:`msgspec.DecodeError` when it is invalid.
    """
    file = path / _PROPERTIES
    if not file.is_file():
        return {}
    recommended = msgspec.json.decode(file.read_bytes(), type=dict[str, dict[str, PluginValue]])
    return {name: value for kind in device_kinds(device) for name, value in recommended.get(kind, {}).items()}

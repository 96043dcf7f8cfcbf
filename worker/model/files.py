"""Size of a model's files, and the OpenVINO properties stored with them."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from shared.runtime.plugin_config import PluginValue
from worker.model.devices import device_kinds

Properties = Mapping[str, Mapping[str, PluginValue]]
"""OpenVINO's properties by kind of device (:func:`~worker.model.devices.device_kinds`)."""

_PROPERTIES = "vinoqueue.json"
"""File in an IR folder with the :data:`Properties` recommended for its weights."""

SMALL_MODEL = 256_000_000
"""Maximum size in bytes of a GGUF file of which the weight cache holds other forms by default."""


def model_bytes(path: Path) -> int:
    """Return the size in bytes of the model file, or of all files in the model folder."""
    return sum(file.stat().st_size for file in ([path] if path.is_file() else path.iterdir()) if file.is_file())


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

"""The body of ``/v1/config`` in OpenVINO Model Server's form, which is that of TensorFlow Serving's model status."""

from collections.abc import Iterable, Set

import msgspec

from shared.protocol.registry import ModelInfo

_STATES = {"loading": "LOADING", "failed": "LOADING", "unloading": "UNLOADING", "unloaded": "END"}
"""By the state of a model of a catalogue. Other models are available once they are loaded."""


def render_config(models: Iterable[ModelInfo], loaded: Set[str]) -> bytes:
    """Encode the status of ``models`` as JSON: each has one version, whose error says why it has failed to load.

    ``loaded`` are the names of those that a worker serves now.
    """
    return msgspec.json.encode({model.name: {"model_version_status": [_status(model, loaded)]} for model in models})


def _status(model: ModelInfo, loaded: Set[str]) -> dict[str, object]:
    failed = model.state == "failed"
    error = {"error_code": "FAILED_PRECONDITION" if failed else "OK", "error_message": model.detail if failed else "OK"}
    state = _STATES.get(model.state, "AVAILABLE" if model.name in loaded else "LOADING")
    return {"version": "1", "state": state, "status": error}

"""The body of ``/v1/config`` in OpenVINO Model Server's form, which is that of TensorFlow Serving's model status."""

from collections.abc import Iterable

import msgspec

from shared.protocol.registry import ModelInfo

_STATES = {"loading": "LOADING", "failed": "LOADING", "unloading": "UNLOADING", "unloaded": "END"}
"""By the state of a model of a catalogue. Other models are available."""


def render_config(models: Iterable[ModelInfo]) -> bytes:
    """Encode the status of ``models`` as JSON: each has one version, whose error says why it has failed to load."""
    return msgspec.json.encode({model.name: {"model_version_status": [_status(model)]} for model in models})


def _status(model: ModelInfo) -> dict[str, object]:
    failed = model.state == "failed"
    error = {"error_code": "FAILED_PRECONDITION" if failed else "OK", "error_message": model.detail if failed else "OK"}
    return {"version": "1", "state": _STATES.get(model.state, "AVAILABLE"), "status": error}

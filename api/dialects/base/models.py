"""Response bodies of ``/v1/models`` and ``/v1/models/{id}`` in OpenAI's form."""

from collections.abc import Iterable

import msgspec

from shared.protocol.registry import ModelInfo

OWNER = "vinoqueue"


def render_model(model: ModelInfo) -> bytes:
    """Encode one model as JSON."""
    return msgspec.json.encode(_model_object(model))


def render_models(models: Iterable[ModelInfo]) -> bytes:
    """Encode a list of models as JSON, in the given order."""
    return msgspec.json.encode({"object": "list", "data": [_model_object(model) for model in models]})


def _model_object(model: ModelInfo) -> dict[str, object]:
    shown: dict[str, object] = {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": OWNER,
        "max_model_len": model.context_length,
        "input_modalities": model.modalities,
    }
    # In the form of llama.cpp's router.
    return shown | {"status": {"value": model.state}} if model.state else shown

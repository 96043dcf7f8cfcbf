"""Bodies of ``/v1/models`` and ``/v1/models/{id}`` in OpenAI's form, and of ``/models/load`` in llama.cpp's."""

from collections.abc import Iterable

import msgspec

from api.dialects.base.body import decode_object
from api.dialects.base.fields import Strict
from api.dialects.base.validation import validate
from shared.protocol.registry import ModelInfo

OWNER = "vinoqueue"


class NamedModel(Strict):
    """Request body of llama.cpp's router to load or unload a model."""

    model: str


def parse_named_model(body: bytes) -> NamedModel:
    """Return what ``body`` names. Raises :class:`RequestRefused`."""
    return validate(NamedModel, decode_object(body))


def render_model(model: ModelInfo) -> bytes:
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
        "kinds": model.kinds,
    }
    if model.max_prompt:
        shown["max_input_tokens"] = model.max_prompt
    if model.formats is not None:
        shown["formats"] = model.formats
    if model.state:
        # In the form of llama.cpp's router, which has only the value.
        detail = {"detail": model.detail} if model.detail else {}
        shown["status"] = {"value": model.state, "nodes": model.nodes} | detail
    return shown

"""Response body of ``GET /info``."""

from collections.abc import Collection

import msgspec

from shared.protocol.errors import ProblemKind, refuse

PROVIDER = "vinoqueue"


def render_info(model: str, serving: Collection[str]) -> bytes:
    """Describe ``model`` as JSON. Raises :class:`RequestRefused` if no worker serves it."""
    if model not in serving:
        raise refuse(ProblemKind.MODEL_NOT_FOUND, f"The model '{model[:64]}' is not served here.", param="model")
    return msgspec.json.encode({"model_name": model, "model_type": "chat-completion", "model_provider_name": PROVIDER})

"""Routes for the models that workers serve."""

from quart import Blueprint, Response

from api.access import may_use, visible_models
from api.context import context
from api.dialects.openai.models import render_model, render_models
from shared.protocol.errors import ProblemKind, refuse

blueprint = Blueprint("models", __name__)


@blueprint.get("/v1/models")
@blueprint.get("/v3/models")
async def list_models() -> Response:
    """List models."""
    models = visible_models()
    return Response(render_models(list(models.values())), content_type="application/json")


@blueprint.get("/v1/models/<path:name>")
@blueprint.get("/v3/models/<path:name>")
async def get_model(name: str) -> Response:
    """Describe a model."""
    model = visible_models().get(name)
    if model is None and may_use(name):
        await context().models.require(name)
        model = visible_models().get(name)
    if model is None:
        message = f"The model `{name}` does not exist or you do not have access to it."
        raise refuse(ProblemKind.MODEL_NOT_FOUND, message)
    return Response(render_model(model), content_type="application/json")

"""Routes for the models that workers serve."""

from quart import Blueprint, Response, request

from api.dialects.anthropic import Anthropic
from api.dialects.anthropic import models as anthropic
from api.dialects.openai import models as openai
from api.http.access import may_use, visible_models
from api.http.exchange import current_exchange
from api.http.json_response import json_response
from api.replica import current_replica
from shared.protocol.errors import ProblemKind, refuse

blueprint = Blueprint("models", __name__)


@blueprint.get("/v1/models")
@blueprint.get("/v3/models")
async def list_models() -> Response:
    """List models."""
    await current_replica().models.refresh_if_empty()
    models = list(visible_models().values())
    if isinstance(current_exchange().dialect, Anthropic):
        body = anthropic.render_models(models, request.args)
    else:
        body = openai.render_models(models)
    return json_response(body)


@blueprint.get("/v1/models/<path:name>")
@blueprint.get("/v3/models/<path:name>")
async def get_model(name: str) -> Response:
    """Describe a model."""
    model = visible_models().get(name)
    if model is None and may_use(name):
        await current_replica().models.require(name)
        model = visible_models().get(name)
    if model is None:
        message = f"The model `{name}` does not exist or you do not have access to it."
        raise refuse(ProblemKind.MODEL_NOT_FOUND, message)
    is_anthropic = isinstance(current_exchange().dialect, Anthropic)
    body = anthropic.render_model(model) if is_anthropic else openai.render_model(model)
    return json_response(body)

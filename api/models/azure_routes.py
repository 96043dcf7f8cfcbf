"""Routes that only Azure's inference API has."""

from typing import cast

from quart import Blueprint, Response

from api.dialects.azure import Azure
from api.http.exchange import current_exchange
from api.http.json_response import json_response

blueprint = Blueprint("azure", __name__)


@blueprint.get("/info")
@blueprint.get("/models/info")
async def info() -> Response:
    """Describe the model that serves requests."""
    return json_response(cast(Azure, current_exchange().dialect).info())

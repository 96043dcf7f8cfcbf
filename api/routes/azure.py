"""Routes that only Azure's inference API has."""

from typing import cast

from quart import Blueprint, Response, g

from api.dialects.azure import Azure

blueprint = Blueprint("azure", __name__)


@blueprint.get("/info")
@blueprint.get("/models/info")
async def info() -> Response:
    """Describe the model that serves requests."""
    return Response(cast(Azure, g.dialect).info(), content_type="application/json")

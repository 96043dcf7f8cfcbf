"""Routes for the models that workers serve."""

from typing import cast

from quart import Response, request

from api.dialects.azure import Azure
from api.http.exchange import current_exchange
from api.http.routes import json_response, route
from api.models.directory import Directory


class ModelsHandler:
    """The served models that the client's key may use."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    @route("GET", "/v1/models", "listModels", errors=(401,))
    @route("GET", "/v3/models", "modelServerModels", errors=(401,))
    async def list(self) -> Response:
        """List the served models."""
        await self._directory.refresh_if_empty()
        models = [*self._directory.visible(current_exchange().key).values()]
        return json_response(current_exchange().dialect.models(models, request.args))

    @route("GET", "/v1/models/<path:name>", "retrieveModel", errors=(401, 404, 503))
    @route("GET", "/v3/models/<path:name>", "modelServerModel", errors=(401, 404, 503))
    async def get(self, name: str) -> Response:
        """Describe a model."""
        key = current_exchange().key
        if name not in self._directory.visible(key) and self._directory.may_use(key, name):
            await self._directory.require(name, key)
        model = self._directory.visible(key).get(name)
        if model is None:
            raise self._directory.not_found(name, key)
        return json_response(current_exchange().dialect.model(model))

    @route("GET", "/info", "azureInfo", errors=(400, 401, 404, 503))
    @route("GET", "/models/info", "azureModelsInfo", errors=(400, 401, 404, 503))
    async def info(self) -> Response:
        """Describe the model that serves requests, to a client of Azure's inference API."""
        return json_response(cast(Azure, current_exchange().dialect).info())

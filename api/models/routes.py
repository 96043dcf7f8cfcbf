"""Routes for the models that workers serve."""

from typing import cast

from quart import Response, request

from api.dialects.azure import Azure
from api.http.exchange import current_exchange
from api.http.routes import json_response, route
from api.models.directory import Directory, model_not_found
from shared.protocol.registry import ModelInfo


class ModelsHandler:
    """The served models that the client's key may use."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    @route("GET", "/v1/models", "listModels", errors=(401,))
    @route("GET", "/v3/models", "modelServerModels", errors=(401,))
    async def list(self) -> Response:
        """List the served models."""
        await self._directory.refresh_if_empty()
        models = [*self._visible().values()]
        return json_response(current_exchange().dialect.models(models, request.args))

    @route("GET", "/v1/models/<path:name>", "retrieveModel", errors=(401, 404, 503))
    @route("GET", "/v3/models/<path:name>", "modelServerModel", errors=(401, 404, 503))
    async def get(self, name: str) -> Response:
        """Describe a model."""
        model = self._visible().get(name)
        if model is None and self._may_use(name):
            await self._directory.require(name)
            model = self._visible().get(name)
        if model is None:
            raise model_not_found(name)
        return json_response(current_exchange().dialect.model(model))

    @route("GET", "/info", "azureInfo", errors=(400, 401, 404, 503))
    @route("GET", "/models/info", "azureModelsInfo", errors=(400, 401, 404, 503))
    async def info(self) -> Response:
        """Describe the model that serves requests, to a client of Azure's inference API."""
        return json_response(cast(Azure, current_exchange().dialect).info())

    def _visible(self) -> dict[str, ModelInfo]:
        """Return the served models that the current request's key may use, by name."""
        return {name: info for name, info in self._directory.fleet.listed().items() if self._may_use(name)}

    def _may_use(self, name: str) -> bool:
        """Return whether the current request's key allows the model ``name``, by this name or by the model's own."""
        key = current_exchange().key
        return key is None or key.may_use(name) or key.may_use(self._directory.fleet.own_name(name))

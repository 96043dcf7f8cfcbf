"""Routes for the models that workers serve."""

from arq.connections import ArqRedis
from quart import Response, request

from api.dialects import ROUTES, SharedModels
from api.dialects.base.interface import Models
from api.dialects.base.models import NamedModel, parse_named_model
from api.dialects.base.routes import Body
from api.dialects.ovms import ModelServer
from api.http.bodies import BodyParser
from api.http.exchange import actor, current_exchange, key_owner, require_admin
from api.http.guards import CrossOrigin
from api.http.routes import json_response, route, serving
from api.models.commands import command_model
from api.models.directory import Directory
from api.records.errors import store_errors
from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.model_commands import Action, CommandRefused
from shared.protocol.registry import ModelInfo, read_registry

_ADMIN_ERRORS = (400, 401, 403, 404, 503)


class ModelsHandler:
    """The served models that the client's key may use."""

    def __init__(self, directory: Directory, redis: ArqRedis, parser: BodyParser, cross_origin: CrossOrigin) -> None:
        self._directory = directory
        self._cross_origin = cross_origin
        self._redis = redis
        self._parser = parser

    @serving(*(route for route in ROUTES if route.serves == "models"))
    async def list(self) -> Response:
        """List the served models."""
        exchange, directory = current_exchange(), self._directory
        body = b""
        if request.method == "POST":
            body = await self._parser.read(request, key_owner(), bytes, untyped=exchange.dialect.untyped)
        await directory.refresh_if_empty()
        found = Models(directory.visible(exchange.key), directory.fleet.loaded(), self._find)
        return json_response(exchange.dialect.models(found, body))

    def _find(self, name: str) -> ModelInfo:
        """Return a model that the client's key may use. Raises :class:`RequestRefused`."""
        key = current_exchange().key
        found = self._directory.visible(key).get(name)
        if found is None and self._directory.may_use(key, name):
            self._directory.check(self._directory.fleet.own_name(name), key)
        if found is None:
            raise self._directory.not_found(name, key)
        return found

    @route("GET", "/v1/models/<path:name>", "retrieveModel", dialect=SharedModels, errors=(401, 404, 503))
    @route("GET", "/v3/models/<path:name>", "modelServerModel", dialect=ModelServer, errors=(401, 404, 503))
    async def get(self, name: str) -> Response:
        """Describe a model."""
        key = current_exchange().key
        if name not in self._directory.visible(key) and self._directory.may_use(key, name):
            await self._directory.require(name, key)
        return json_response(current_exchange().dialect.model(self._find(name)))

    @route("GET", "/v2/models/<path:name>/ready", "kserveModelReady", errors=(401, 404, 503))
    async def ready(self, name: str) -> Response:
        """Say whether a worker serves a model now, as KServe and OpenVINO Model Server do."""
        await self._directory.refresh_if_empty()
        key = current_exchange().key
        if name not in self._directory.visible(key):
            raise self._directory.not_found(name, key)
        ready = name in self._directory.fleet.loaded()
        return json_response(b'{"ready":true}' if ready else b'{"ready":false}', 200 if ready else 503)

    @route("POST", "/v1/models/<path:name>/load", "loadModel", dialect=SharedModels, errors=_ADMIN_ERRORS)
    async def load(self, name: str) -> Response:
        """Have a node load a model of its catalogue. Returns at once; the model's ``status`` says how far it is."""
        return json_response(current_exchange().dialect.model(await self._command(name, "load")))

    @route("POST", "/v1/models/<path:name>/unload", "unloadModel", dialect=SharedModels, errors=_ADMIN_ERRORS)
    async def unload(self, name: str) -> Response:
        """Have all nodes unload a model until a request needs it. Requests in progress may finish, or go on later."""
        return json_response(current_exchange().dialect.model(await self._command(name, "unload")))

    @route("POST", "/models/load", "routerLoadModel", body=Body(NamedModel), errors=(*_ADMIN_ERRORS, 408, 413, 415))
    async def router_load(self) -> Response:
        """Have a node load a model, in the form of llama.cpp's router."""
        return await self._router_command("load")

    @route("POST", "/models/unload", "routerUnloadModel", body=Body(NamedModel), errors=(*_ADMIN_ERRORS, 408, 413, 415))
    async def router_unload(self) -> Response:
        """Have all nodes unload a model, in the form of llama.cpp's router."""
        return await self._router_command("unload")

    async def _router_command(self, action: Action) -> Response:
        named: NamedModel = await self._parser.read(request, key_owner(), parse_named_model)
        await self._command(named.model, action)
        return json_response(b'{"success":true}')

    async def _command(self, name: str, action: Action) -> ModelInfo:
        """Command all nodes, and return the model as it was before."""
        require_admin()
        self._cross_origin.refuse_foreign(request.headers, "load and unload models")
        key = current_exchange().key
        model = await self._directory.own_name(name)
        info = self._directory.fleet.serving().get(model)
        if info is None or not self._directory.may_use(key, name):
            raise self._directory.not_found(name, key)
        async with store_errors():
            try:
                nodes = (await read_registry(self._redis)).nodes
                await command_model(self._redis, nodes, model, action, by=actor())
            except CommandRefused as refusal:
                raise refuse(ProblemKind.INVALID, str(refusal), param="model") from None
        return info

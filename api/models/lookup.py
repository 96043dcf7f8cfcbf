"""Model lookup: resolves the names that clients send, and refuses models that nobody serves."""

from redis.exceptions import RedisError

from api.base.store_errors import store_unavailable
from api.models.directory import Directory
from shared.protocol.errors import ProblemKind, logits_refused, modality_refused, refuse
from shared.protocol.registry import IMAGE
from shared.protocol.request import ChatRequest
from shared.protocol.version import PROTOCOL

RETRY_NO_WORKER = 5.0
"""``Retry-After`` in seconds while no worker can serve a request."""


class ModelLookup:
    """Looks models up in the directory."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def own_name(self, name: str) -> str:
        """Resolve an alias to the model's own name. Refreshes the directory if no known worker serves the model.

        Raises :class:`RequestRefused` when the store is unreachable.
        """
        fleet = self._directory.fleet
        if fleet.own_name(name) not in fleet.serving():
            await self._refresh()
        return self._directory.fleet.own_name(name)

    async def refresh_if_empty(self) -> None:
        """Refresh the directory if it has no model that is served, as before the first worker was seen.

        Raises :class:`RequestRefused` when the store is unreachable.
        """
        if not self._directory.fleet.serving():
            await self._refresh()

    async def require(self, name: str) -> None:
        """Raise :class:`RequestRefused` unless a worker serves the model or alias ``name``."""
        self.check(await self.own_name(name))

    def check_request(self, request: ChatRequest) -> None:
        """Raise :class:`RequestRefused` unless workers can serve ``request``, whose model has its own name."""
        self.check(request.model)
        self._check_modalities(request)
        self._check_protocol(request.model)
        self._check_logits(request)

    def _check_modalities(self, request: ChatRequest) -> None:
        """Raise :class:`RequestRefused` if there are images and the model reads none."""
        if not request.images or IMAGE in self._directory.fleet.models[request.model].modalities:
            return
        for image in request.images:
            raise modality_refused("image_url", image.param)

    def _check_logits(self, request: ChatRequest) -> None:
        """Raise :class:`RequestRefused` if ``request`` needs logits and a worker that may claim it has none.

        All workers of a model share one queue, so all of them must have access to logits.
        """
        param = request.logits_param
        if param is not None and not self._directory.fleet.has_logits(request.model):
            raise logits_refused(param)

    def _check_protocol(self, model: str) -> None:
        """Raise :class:`RequestRefused` if a worker that may claim jobs of ``model`` cannot read those of this replica.

        All workers of a model share one queue, so all of them must read its jobs.
        """
        if workers := self._directory.fleet.unreadable_for(model):
            raise refuse(
                ProblemKind.NO_WORKER,
                f"The model '{model}' is being upgraded: {len(workers)} of its workers cannot read requests of this "
                f"server's protocol version {PROTOCOL}. Please try again later.",
                retry_after=RETRY_NO_WORKER,
            )

    def check(self, model: str) -> None:
        """Raise :class:`RequestRefused` unless a known worker serves ``model``, which must be the model's own name."""
        fleet = self._directory.fleet
        if model in fleet.serving():
            return
        if fleet.loading(model):
            raise refuse(
                ProblemKind.NO_WORKER,
                f"The model '{model}' is loading. Please try again later.",
                retry_after=RETRY_NO_WORKER,
            )
        if model in fleet.models:
            raise refuse(
                ProblemKind.NO_WORKER,
                f"No worker serves the model '{model}' at the moment. Please try again later.",
                retry_after=RETRY_NO_WORKER,
            )
        raise refuse(
            ProblemKind.MODEL_NOT_FOUND, f"The model `{model}` does not exist or you do not have access to it."
        )

    async def _refresh(self) -> None:
        try:
            await self._directory.refresh()
        except (RedisError, OSError) as error:
            raise store_unavailable(error) from error

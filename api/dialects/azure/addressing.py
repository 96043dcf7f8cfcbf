"""Azure's rules for selecting the model of a request, and for the required API version."""

import re
from collections.abc import Collection

from api.dialects.azure.errors import INVALID_API_VERSION, INVALID_REQUEST
from api.dialects.base.interface import Lookup
from shared.protocol.errors import ProblemKind, refuse

DEPLOYMENT_HEADER = "azureml-model-deployment"

_API_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(-preview)?")
_RETRY_NO_WORKER = 5.0


def check_api_version(query: Lookup) -> None:
    """Raise :class:`RequestRefused` unless ``api-version`` is present and has the reference's format.

    Every version in that format is accepted, because the served features are the same in all of them.
    """
    version = query.get("api-version")
    if version is None or not _API_VERSION.fullmatch(version):
        got = "it is missing" if version is None else f"got '{version[:64]}'"
        raise refuse(
            ProblemKind.INVALID,
            f"The query parameter 'api-version' must be given as YYYY-MM-DD or YYYY-MM-DD-preview, but {got}.",
            param="api-version",
            code=INVALID_API_VERSION,
        )


def choose_model(headers: Lookup, serving: Collection[str], named: object) -> str:
    """Return the name of the model that a request selects, whether or not a worker serves it.

    The order, by the reference, is: the deployment header, the only served model regardless of the body, the model
    in the body. ``named`` is the body's value, of any type. Raises :class:`RequestRefused` if none of them applies.
    """
    deployment = headers.get(DEPLOYMENT_HEADER)
    if deployment:
        return deployment
    if len(serving) == 1:
        return next(iter(serving))
    if isinstance(named, str) and named:
        return named
    if not serving:
        raise refuse(
            ProblemKind.NO_WORKER,
            "No worker serves a model at the moment. Please try again later.",
            retry_after=_RETRY_NO_WORKER,
        )
    names = ", ".join(f"'{name}'" for name in serving)
    raise refuse(
        ProblemKind.INVALID,
        f"Several models are served: name one of {names} in the header '{DEPLOYMENT_HEADER}' or in the body's 'model'.",
        param="model",
        code=INVALID_REQUEST,
    )

"""Which model a request is for, by Azure's rules, and the version of the API that it has to name."""

import re
from collections.abc import Collection

from api.dialects.azure.errors import INVALID_API_VERSION, INVALID_REQUEST
from api.dialects.interface import Lookup
from shared.protocol.errors import ProblemKind, refuse

DEPLOYMENT_HEADER = "azureml-model-deployment"

_API_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(-preview)?")
_RETRY_NO_WORKER = 5.0


def check_api_version(query: Lookup) -> None:
    """Raise :class:`RequestRefused` unless ``api-version`` is there, in the form of the reference.

    Every version of that form is taken: what is served here is the same in all of them.
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
    """Return the name of the model that a request is for; no worker need serve it.

    That is the one in the deployment header, else the only one that is served, whatever the body says (both are rules
    of the reference), else the one that the body names. ``named`` is the body's own word, of any type. Raises
    :class:`RequestRefused` when nothing says which model.
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

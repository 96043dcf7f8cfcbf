"""Access checks of HTTP requests: Host header, connection limits, API key and model access."""

from quart import request

from api.base.hosts import is_well_formed
from api.http.connection_extension import connection_extension
from api.http.exchange import current_exchange
from api.http.routes import METRICS_PATH, OPEN_PATHS, PROBE_PATHS
from api.replica import current_replica
from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.registry import ModelInfo


async def check_host() -> None:
    """Check the Host header. Raises :class:`RequestRefused`."""
    hosts = request.headers.getlist("host")
    if request.http_version == "1.0" and (not hosts or hosts == [""]):
        return  # Optional in HTTP/1.0; browsers always send it.
    if len(hosts) != 1 or not is_well_formed(hosts[0]):
        raise refuse(ProblemKind.INVALID, "A request needs exactly one valid Host header.")
    if request.path not in PROBE_PATHS and not current_replica().hosts.allow(hosts[0]):
        raise refuse(
            ProblemKind.WRONG_HOST,
            f"This API is not served under the host name '{hosts[0][:100]}'. "
            "Its operator can add the name to --allowed-hosts (VINOQUEUE_ALLOWED_HOSTS).",
        )


async def check_connection() -> None:
    """Refuse everything but probes and metrics on surplus connections. Raises :class:`RequestRefused`."""
    connection = connection_extension(request)
    if connection is not None and connection["surplus"] and request.path not in (*PROBE_PATHS, METRICS_PATH):
        raise refuse(
            ProblemKind.TOO_MANY_CONNECTIONS, "There are too many open connections. Please try again.", retry_after=1.0
        )


async def check_key() -> None:
    """Identify the API key of the current request before anything else is processed.

    Raises :class:`RequestRefused`.
    """
    replica = current_replica()
    if (
        request.path in OPEN_PATHS
        or request.path in replica.page
        or (request.path == METRICS_PATH and replica.settings.open_metrics)
    ):
        return
    current_exchange().key = await replica.admission.identify(request.headers)


def is_foreign() -> bool:
    """Return whether the current request comes from a web page of another origin that is not allowed."""
    origin = request.headers.get("origin")
    own = origin is None or origin.partition("://")[2] == request.headers.get("host")
    return not own and not current_replica().cross_origin.allows(origin)


def visible_models() -> dict[str, ModelInfo]:
    """Return the served models that the current request's key may use, by name."""
    fleet = current_replica().directory.fleet
    return {name: info for name, info in fleet.listed().items() if may_use(name)}


def may_use(name: str) -> bool:
    """Return whether the current request's key allows the model ``name``, by this name or by the model's own."""
    key = current_exchange().key
    return key is None or key.may_use(name) or key.may_use(current_replica().directory.fleet.own_name(name))

"""Guards: checks of each HTTP request before its route runs: Host header, connection limits, API key."""

from collections.abc import Collection

from quart import Response, request
from redis.exceptions import RedisError

from api.base.hosts import AllowedHosts, is_well_formed
from api.base.store_errors import store_unavailable
from api.dialects.base.interface import Lookup
from api.http.connection_extension import connection_extension
from api.http.cross_origin import CrossOrigin
from api.http.exchange import current_exchange
from api.http.routes import METRICS_PATH, OPEN_PATHS, PROBE_PATHS
from api.keys import ApiKey, Keyring
from api.keys.secret import masked
from shared.protocol.errors import ProblemKind, refuse


class Guards:
    """Refuses requests that no route may see."""

    def __init__(
        self, hosts: AllowedHosts, cross_origin: CrossOrigin, keyring: Keyring, *, open_paths: Collection[str]
    ) -> None:
        """``open_paths`` are the paths that need no key, in addition to :data:`OPEN_PATHS`."""
        self._hosts = hosts
        self._cross_origin = cross_origin
        self._keyring = keyring
        self._open_paths = OPEN_PATHS.union(open_paths)

    async def check(self) -> Response | None:
        """Check the current request and identify its key, before anything else is processed.

        Returns the response to a browser that asks whether a page of an allowed origin may send its request. It sends
        no key yet. Raises :class:`RequestRefused`.
        """
        self._check_host()
        if self._cross_origin.is_preflight(request.method, request.headers):
            response = Response(status=204)
            response.headers.update(self._cross_origin.preflight_headers(request.headers))
            return response
        _check_connection()
        if request.path not in self._open_paths:
            current_exchange().key = await identify(self._keyring, request.headers)
        return None

    def _check_host(self) -> None:
        hosts = request.headers.getlist("host")
        if request.http_version == "1.0" and (not hosts or hosts == [""]):
            return  # Optional in HTTP/1.0; browsers always send it.
        if len(hosts) != 1 or not is_well_formed(hosts[0]):
            raise refuse(ProblemKind.INVALID, "A request needs exactly one valid Host header.")
        if request.path not in PROBE_PATHS and not self._hosts.allow(hosts[0]):
            raise refuse(
                ProblemKind.WRONG_HOST,
                f"This API is not served under the host name '{hosts[0][:100]}'. "
                "Its operator can add the name to --allowed-hosts (VINOQUEUE_ALLOWED_HOSTS).",
            )


async def identify(keyring: Keyring, headers: Lookup) -> ApiKey | None:
    """Return the API key sent in ``headers``; ``None`` when the service requires no keys.

    Reads ``Authorization: Bearer``, Azure's ``api-key`` and Anthropic's ``x-api-key``; one valid secret is enough.
    Raises :class:`RequestRefused` when there is none.
    """
    if not keyring.loaded:
        try:
            await keyring.refresh()
        except (RedisError, OSError) as error:
            raise store_unavailable(error) from error
    if keyring.open:
        return None
    secrets = _secrets(headers)
    if not secrets:
        raise refuse(
            ProblemKind.UNAUTHORIZED,
            "No API key was sent. Send yours in a header: 'Authorization: Bearer YOUR_KEY' or 'api-key: YOUR_KEY'.",
        )
    key = keyring.find(secrets)
    if key is None:
        raise refuse(
            ProblemKind.UNAUTHORIZED,
            f"Incorrect API key provided: {masked(secrets[0])}. Ask the operator of this service for a valid one.",
        )
    return key


def _check_connection() -> None:
    """Refuse everything but probes and metrics on connections over the limit."""
    connection = connection_extension(request)
    if connection is not None and connection["over_limit"] and request.path not in (*PROBE_PATHS, METRICS_PATH):
        raise refuse(
            ProblemKind.TOO_MANY_CONNECTIONS, "There are too many open connections. Please try again.", retry_after=1.0
        )


def _secrets(headers: Lookup) -> list[str]:
    scheme, _, bearer = (headers.get("authorization") or "").partition(" ")
    found = [bearer.strip() if scheme.lower() == "bearer" else ""]
    found += [(headers.get(name) or "").strip() for name in ("api-key", "x-api-key")]
    return [secret for secret in found if secret]

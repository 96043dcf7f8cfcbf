"""Guards: what every request passes before its route. Host header, origin, connection limits, API key."""

from collections.abc import Awaitable, Callable, Collection

from quart import Response, request

from api.base.hosts import AllowedHosts, is_well_formed
from api.dialects.base.interface import Lookup
from api.http.connection_extension import connection_extension
from api.http.cross_origin import CrossOrigin
from api.http.exchange import current_exchange
from api.http.routes import METRICS_PATH, OPEN_PATHS, PROBE_PATHS
from api.keys import ApiKey
from shared.protocol.errors import ProblemKind, refuse


class Guards:
    """Checks the current request."""

    def __init__(
        self,
        hosts: AllowedHosts,
        cross_origin: CrossOrigin,
        identify: Callable[[Lookup], Awaitable[ApiKey | None]],
        *,
        page: Collection[str],
        open_metrics: bool,
    ) -> None:
        """``identify`` returns the API key in a request's headers, or raises :class:`RequestRefused`. ``page`` are the
        paths of the web page, which need no key; neither does ``/metrics`` with ``open_metrics``."""
        self._hosts = hosts
        self._cross_origin = cross_origin
        self._identify = identify
        self._open_paths = OPEN_PATHS.union(page, (METRICS_PATH,) if open_metrics else ())

    async def check(self) -> Response | None:
        """Return the response to a preflight request, or ``None`` for a request that may pass.

        A preflight is a browser's question whether a page of another origin may send a request; it has no key. Raises
        :class:`RequestRefused`.
        """
        self._check_host()
        if self._cross_origin.is_preflight(request.method, request.headers):
            response = Response(status=204)
            response.headers.update(self._cross_origin.preflight_headers(request.headers))
            return response
        self._check_connection()
        if request.path not in self._open_paths:
            current_exchange().key = await self._identify(request.headers)
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

    def _check_connection(self) -> None:
        """Refuse everything but probes and metrics on connections over the limit."""
        connection = connection_extension(request)
        if connection is not None and connection["over_limit"] and request.path not in (*PROBE_PATHS, METRICS_PATH):
            message = "There are too many open connections. Please try again."
            raise refuse(ProblemKind.TOO_MANY_CONNECTIONS, message, retry_after=1.0)

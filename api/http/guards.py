"""Guards: checks of each HTTP request before its route runs: Host header, origin, connection limits, API key."""

import ipaddress
import re
from collections.abc import Collection, Iterable, Mapping

from quart import Response, request

from api.dialects.base.interface import Lookup
from api.http.exchange import connection_extension, current_exchange
from api.http.routes import METRICS_PATH, OPEN_PATHS, PROBE_PATHS
from api.keys import ApiKey, Keyring
from api.keys.secret import masked
from api.records.errors import store_errors
from shared.protocol.errors import ProblemKind, refuse

_MAX_AGE = "600"
"""Seconds for which browsers remember the response to a preflight request."""
_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,2000}")


class CrossOrigin:
    """Cross-origin resource sharing (CORS): which web pages of other origins may use the API. By default, none.

    Credentials are keys in headers, never cookies.
    """

    def __init__(self, origins: Iterable[str]) -> None:
        """``origins`` are the allowed ones, such as ``https://app.example``; ``*`` allows any."""
        self._origins = {origin.strip().rstrip("/").lower() for origin in origins if origin.strip()}

    @property
    def enabled(self) -> bool:
        """Whether any other origin is allowed, so that responses depend on the origin."""
        return bool(self._origins)

    def is_preflight(self, method: str, headers: Lookup) -> bool:
        is_preflight = method == "OPTIONS" and bool(headers.get("access-control-request-method"))
        return is_preflight and self.allows(headers.get("origin"))

    def preflight_headers(self, headers: Lookup) -> Mapping[str, str]:
        """Return the headers of the response to a preflight request: all methods and the headers that it names."""
        names = headers.get("access-control-request-headers") or ""
        return {
            "access-control-allow-methods": "GET, POST, DELETE",
            "access-control-allow-headers": names if _NAMES.fullmatch(names) else "authorization, content-type",
            "access-control-max-age": _MAX_AGE,
        }

    def response_headers(self, headers: Lookup) -> Mapping[str, str]:
        """Return the headers to add to the response to a request with ``headers``."""
        origin = headers.get("origin")
        if not self.allows(origin):
            return {}
        return {"access-control-allow-origin": origin or "", "access-control-expose-headers": "*"}

    def allows(self, origin: str | None) -> bool:
        return bool(origin) and ("*" in self._origins or str(origin).lower() in self._origins)

    def refuse_foreign(self, headers: Lookup, action: str) -> None:
        """Refuse a request of a web page of another origin that is not allowed. ``action`` is what it can't do.

        For what browsers send across origins without asking first: forms, and requests without a body. Raises
        :class:`RequestRefused`.
        """
        origin = headers.get("origin")
        own = origin is None or origin.partition("://")[2] == headers.get("host")
        if not own and not self.allows(origin):
            raise refuse(ProblemKind.FORBIDDEN, f"Web pages of other sites can't {action}.", code="origin_not_allowed")


HOST = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._~-]+))(?::[0-9]*)?")
"""The form of a Host header (RFC 9110, 7.2)."""


class AllowedHosts:
    """Checks Host headers, as protection against DNS rebinding.

    A web page can make its own host name resolve to a loopback or private address, and then read the responses of a
    server there. Its requests have that name in their Host header, so host names are checked. IP addresses are always
    allowed: a page loaded from an IP address belongs to the server itself.
    """

    def __init__(self, names: Iterable[str], listens_on: str) -> None:
        """``names`` are the operator's; ``*`` allows any. Without names, only loopback names are allowed if
        ``listens_on`` is a loopback address, and any otherwise."""
        self._names = {name.strip().rstrip(".").lower() for name in names if name.strip()}
        self._loopback = not self._names and is_loopback(listens_on)
        self._any = "*" in self._names or not (self._names or self._loopback)

    def allow(self, host: str) -> bool:
        """Return whether ``host``, with or without a port, is an allowed Host header."""
        parsed = HOST.fullmatch(host)
        if parsed is None:
            return False
        if self._any or parsed["six"]:
            return True
        name = parsed["name"].rstrip(".").lower()
        if name in self._names or _is_address(name):
            return True
        return self._loopback and (name == "localhost" or name.endswith(".localhost"))


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    try:
        ipaddress.IPv4Address(name)
    except ValueError:
        return False
    return True


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
        if current_exchange().dialect.untyped:
            self._cross_origin.refuse_foreign(request.headers, "use this API")
        if request.path not in self._open_paths:
            current_exchange().key = await identify(self._keyring, request.headers)
        return None

    def _check_host(self) -> None:
        hosts = request.headers.getlist("host")
        if request.http_version == "1.0" and (not hosts or hosts == [""]):
            return  # Optional in HTTP/1.0; browsers always send it.
        if len(hosts) != 1 or HOST.fullmatch(hosts[0]) is None:
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
        async with store_errors():
            await keyring.refresh()
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

"""Cross-origin resource sharing (CORS): which web pages of other origins may use the API. By default, none."""

import re
from collections.abc import Iterable, Mapping

from api.dialects.base.interface import Lookup

_MAX_AGE = "600"
"""Seconds for which browsers remember the response to a preflight request."""
_NAMES = re.compile(r"[A-Za-z0-9_, -]{1,2000}")


class CrossOrigin:
    """Decides on the CORS headers of responses. Credentials are keys in headers, never cookies."""

    def __init__(self, origins: Iterable[str]) -> None:
        """``origins`` are the allowed ones, such as ``https://app.example``; ``*`` allows any."""
        self._origins = {origin.strip().rstrip("/").lower() for origin in origins if origin.strip()}

    @property
    def enabled(self) -> bool:
        """Whether any other origin is allowed, so that responses depend on the origin."""
        return bool(self._origins)

    def is_preflight(self, method: str, headers: Lookup) -> bool:
        """Return whether a request is a preflight of an allowed origin."""
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
        """Return whether pages of ``origin`` may use the API."""
        return bool(origin) and ("*" in self._origins or str(origin).lower() in self._origins)

    def is_foreign(self, headers: Lookup) -> bool:
        """Return whether a request with ``headers`` comes from a web page of another origin that is not allowed."""
        origin = headers.get("origin")
        own = origin is None or origin.partition("://")[2] == headers.get("host")
        return not own and not self.allows(origin)

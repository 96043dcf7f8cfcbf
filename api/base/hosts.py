"""Allowed host names: protection against DNS rebinding.

A web page can make its own host name resolve to a loopback or private address, and then read the responses of a server
there. Its requests have that name in their Host header, so host names are checked. IP addresses are always allowed: a
page loaded from an IP address belongs to the server itself.
"""

import ipaddress
import re
from collections.abc import Iterable

_HOST = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._~-]+))(?::[0-9]*)?")


class AllowedHosts:
    """Checks Host headers."""

    def __init__(self, names: Iterable[str], listens_on: str) -> None:
        """``names`` are the operator's; ``*`` allows any. Without names, only loopback names are allowed if
        ``listens_on`` is a loopback address, and any otherwise."""
        self._names = {name.strip().rstrip(".").lower() for name in names if name.strip()}
        self._any = "*" in self._names
        self._loopback = not self._names and is_loopback(listens_on)
        if not self._names and not self._loopback:
            self._any = True

    def allow(self, host: str) -> bool:
        """Return whether ``host``, with or without a port, is an allowed Host header."""
        parsed = _HOST.fullmatch(host)
        if parsed is None:
            return False
        if self._any or parsed["six"]:
            return True
        name = parsed["name"].rstrip(".").lower()
        if name in self._names or _is_address(name):
            return True
        return self._loopback and (name == "localhost" or name.endswith(".localhost"))


def is_well_formed(host: str) -> bool:
    """Return whether ``host`` has the form of a Host header (RFC 9110, 7.2)."""
    return _HOST.fullmatch(host) is not None


def is_loopback(host: str) -> bool:
    """Return whether ``host`` is a loopback name or address."""
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

"""Which hosts clients may address the API by.

A web page can have its own host name resolve to a loopback or private address (DNS rebinding), and then read what a
server there answers. Its requests carry that name in their Host header, so names are checked. IP addresses need no
check: a page that was loaded from an address by number is the server's own.
"""

import ipaddress
import re
from collections.abc import Iterable

_HOST = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._~-]+))(?::[0-9]*)?")


class AllowedHosts:
    """The check of Host headers."""

    def __init__(self, names: Iterable[str], listens_on: str) -> None:
        """``names`` as set by the operator, ``*`` for any; without names, those of loopback addresses if ``listens_on``
        is one, and any otherwise."""
        self._names = {name.strip().rstrip(".").lower() for name in names if name.strip()}
        self._any = "*" in self._names
        self._loopback = not self._names and is_loopback(listens_on)
        if not self._names and not self._loopback:
            self._any = True

    def allow(self, host: str) -> bool:
        """Whether a request may have the Host header ``host``, with or without a port."""
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
    """Whether ``host`` has the form of a Host header (RFC 9110, 7.2)."""
    return _HOST.fullmatch(host) is not None


def is_loopback(host: str) -> bool:
    """Whether ``host`` is a name or address of the machine itself."""
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

"""The URL of the store, parsed for all processes.

Error messages quote nothing of a URL, because any part of a malformed one may be a piece of its password.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote

_TLS = {"redis": False, "valkey": False, "rediss": True, "valkeys": True}
"""Schemes of TCP, and whether they are TLS; each of them also with ``+sentinel``."""

_STORE_PORT = 6379
_SENTINEL_PORT = 26379

_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<name>[\w.-]+))(?::(?P<port>[0-9]{1,5}))?")
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, kw_only=True)
class StoreUrl:
    """A parsed URL. ``options`` are arguments of redis-py's connections to the store."""

    kind: Literal["tcp", "tls", "unix"]
    addresses: tuple[tuple[str, int], ...]
    """Host and port of the store or of each Sentinel; none for a Unix socket."""
    service: str
    """The name by which Sentinels know the store; empty without Sentinels."""
    options: dict[str, Any]

    def __str__(self) -> str:
        """Return where the store is, without its password."""
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.addresses)
        return " of ".join(part for part in (self.service, hosts or self.options["path"]) if part)


def parse_url(url: str) -> StoreUrl:
    """Parse the URL of a store.

    ``redis://``, ``rediss://`` (TLS) or Valkey's ``valkey://`` and ``valkeys://``, with
    ``[[user]:password@]host[:port][/database][?option=value&...]``; the same schemes with ``+sentinel``, and
    ``host[:port],host[:port].../service[/database]``; ``unix://[[user]:password@]/path``. The options are those of
    :data:`_OPTIONS`, named as in redis-py. User, password, path and values are percent-encoded.

    Raises :class:`ValueError` for a malformed URL.
    """
    scheme, separator, rest = url.partition("://")
    base, sentinel = scheme.removesuffix("+sentinel"), scheme.endswith("+sentinel")
    if not separator or (base not in _TLS and scheme != "unix"):
        raise ValueError(
            "it must begin with redis://, rediss:// (TLS), valkey://, valkeys:// (TLS) or unix://, or for Sentinels "
            "with redis+sentinel:// or rediss+sentinel://"
        )
    address, question, query = rest.partition("?")
    authority, slash, path = address.partition("/")
    credentials, at, hosts = authority.rpartition("@")
    # A '/', '?' or '#' in a password ends the part that it stands in, so that its '@' is in a later part.
    if "@" in credentials or "#" in rest or "@" in query or (scheme != "unix" and "@" in path):
        raise _not_encoded()
    options = _options(query, tls=_TLS.get(base, False)) if question else {}
    if at:
        user, _, password = credentials.partition(":")
        given = {"username": _decoded(user), "password": _decoded(password)}
        options |= {name: value for name, value in given.items() if value}
    if scheme == "unix":
        if hosts or not path:
            raise ValueError("a Unix socket needs an absolute path, as in unix:///run/valkey.sock")
        return StoreUrl(kind="unix", addresses=(), service="", options={"path": _decoded(f"/{path}")} | options)
    service, slash, database = path.partition("/") if sentinel else ("", slash, path)
    if sentinel and not service:
        raise ValueError(
            "Sentinels need a service after their hosts: redis+sentinel://host:26379,host2:26379/mymaster/0"
        )
    if not re.fullmatch("[0-9]*/?", database):
        raise _not_encoded()
    port = _SENTINEL_PORT if sentinel else _STORE_PORT
    return StoreUrl(
        kind="tls" if _TLS[base] else "tcp",
        addresses=tuple(_address(host, port) for host in (hosts.split(",") if sentinel else [hosts])),
        service=_decoded(service),
        options={"db": int(database.rstrip("/") or 0)} | options,
    )


def _not_encoded() -> ValueError:
    return ValueError(
        "it does not have the form redis://user:password@host:6379/0. In user and password, write % as %25, / as %2F, "
        "? as %3F, # as %23 and @ as %40"
    )


def _address(text: str, port: int) -> tuple[str, int]:
    found = _HOST.fullmatch(text)
    if found is None or (number := int(found["port"] or port)) > 65535:
        raise _not_encoded()
    return found["v6"] or found["name"], number


def _decoded(text: str) -> str:
    if _STRAY_PERCENT.search(text):
        raise _not_encoded()
    return unquote(text)


def _seconds(text: str) -> float:
    if (number := float(text)) > 0:
        return number
    raise ValueError


def _file(text: str) -> str:
    if os.access(text, os.R_OK):
        return text
    raise ValueError("is not a file that can be read")


_OPTIONS: dict[str, Callable[[str], Any]] = {
    "db": int,
    "username": str,
    "password": str,
    "client_name": str,
    "socket_timeout": _seconds,
    "socket_connect_timeout": _seconds,
    "ssl_ca_certs": _file,
    "ssl_certfile": _file,
    "ssl_keyfile": _file,
    "ssl_cert_reqs": {word: word for word in ("none", "optional", "required")}.__getitem__,
    "ssl_check_hostname": {"true": True, "1": True, "false": False, "0": False}.__getitem__,
    "ssl_ciphers": str,
}
"""The options of a URL, and what reads their values."""


def _options(query: str, *, tls: bool) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for pair in query.split("&"):
        name, _, text = pair.partition("=")
        if (read := _OPTIONS.get(name)) is None:
            raise ValueError(f"an option after '?' is none of {', '.join(_OPTIONS)}. {_not_encoded()}")
        if name.startswith("ssl_") and not tls:
            raise ValueError(f"{name} needs TLS: rediss:// or valkeys://")
        try:
            options[name] = read(_decoded(text))
        except (KeyError, ValueError) as error:
            reason = str(error) if isinstance(error, ValueError) and read is _file else "has no valid value"
            raise ValueError(f"{name} {reason}") from None
    if options.get("ssl_check_hostname") and options.get("ssl_cert_reqs") == "none":
        raise ValueError("ssl_check_hostname needs ssl_cert_reqs=required")
    return options

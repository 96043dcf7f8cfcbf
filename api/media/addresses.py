"""Which IP addresses are public."""

import ipaddress

_PRIVATE = tuple(
    map(
        ipaddress.ip_network,
        (
            # Python 3.11 takes these for public ones, or does so in some releases.
            "192.0.0.0/24",  # IETF protocol assignments
            "192.88.99.0/24",  # 6to4 relays
            "64:ff9b:1::/48",  # local-use translation to IPv4 (RFC 8215), at any offset
            "100::/64",  # discard
            "2001::/23",  # IETF protocol assignments, Teredo among them
            "2001:db8::/32",  # documentation
            "3fff::/20",  # documentation
            "5f00::/16",  # segment routing
            "fec0::/10",  # site-local
        ),
    )
)
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
_TRANSLATION_FROM = ipaddress.IPv6Network("::ffff:0:0:0/96")
_IPV4 = 0xFFFFFFFF


def is_public(address: str) -> bool:
    """Return whether ``address`` is a public unicast one. An IPv6 address that contains an IPv4 address, from which a
    gateway may send packets to that, is public only if both are."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = _embedded(parsed)
        if inner is not None and not is_public(str(inner)):
            return False
    listed = any(parsed.version == network.version and parsed in network for network in _PRIVATE)
    return parsed.is_global and not parsed.is_multicast and not listed


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if any(address in network for network in (_COMPATIBLE, _TRANSLATED, _TRANSLATION_FROM)):
        return ipaddress.IPv4Address(int(address) & _IPV4)
    return None

"""Which addresses are public: those that contain an IPv4 address only if that one is."""

import pytest

from api.media.lookups import is_public

OTHERS = [
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "192.0.0.8",
    "192.88.99.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "::127.0.0.1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:10.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254",
    "64:ff9b:1::", "64:ff9b:1::8.8.8.8", "64:ff9b:1:7f00:0:100::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "100::1",
    "2001::1", "2001:0:808:808::", "2001:db8::1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "3fff::1", "5f00::1", "fc00::1",
    "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "64:ff9c::1", "4000::1", "192.0.2.1", "198.51.100.1",
    "203.0.113.1", "::ffff:0:8.8.8.8",
]  # fmt: skip
PUBLIC = [
    "8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1",
    "2001:200::1", "223.255.255.255", "9.255.255.255", "3ffe::1",
]  # fmt: skip


@pytest.mark.parametrize("address", OTHERS)
def test_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    assert is_public(address)

"""URLs of the store: what they mean, and errors that tell nothing of a password."""

from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from cli.main import main
from shared.redis.client import connect, raw_connection
from shared.redis.url import parse_url

SECRET = "hunter2"
"""Stands on both sides of the character in question."""


@pytest.mark.parametrize("scheme", ["redis", "rediss", "valkey", "valkeys"])
@pytest.mark.parametrize(("sentinel", "rest"), [("", "store:6380/3"), ("+sentinel", "one,[::1]:27000/mymaster/3")])
def test_schemes(scheme: str, sentinel: str, rest: str) -> None:
    url = parse_url(f"{scheme}{sentinel}://me:p%2Fss:w%25rd@{rest}")
    assert url.kind == ("tls" if scheme.endswith("ss") or scheme == "valkeys" else "tcp")
    assert url.addresses == ((("one", 26379), ("::1", 27000)) if sentinel else (("store", 6380),))
    assert url.service == ("mymaster" if sentinel else "")
    assert url.options == {"db": 3, "username": "me", "password": "p/ss:w%rd"}
    assert str(url) == ("mymaster of one:26379,[::1]:27000" if sentinel else "store:6380")


def test_every_character_of_a_password_can_be_encoded() -> None:
    password = "".join(map(chr, range(33, 127)))
    for url in ("redis://:{}@store", "redis+sentinel://u:{}@one/m", "unix://:{}@/run/store.sock"):
        assert parse_url(url.format(quote(password, safe=""))).options["password"] == password


@pytest.mark.parametrize("character", "/#?%@")
@pytest.mark.parametrize(
    "form",
    [
        "redis://:{}@store:6379/0",
        "valkeys://user:{}@store/0",
        "redis+sentinel://:{}@one,two:27000/mymaster/0",
        "unix://:{}@/run/store.sock",
    ],
)
def test_a_password_that_is_not_encoded_is_not_told(form: str, character: str) -> None:
    url = form.format(f"{SECRET}{character}{SECRET}")
    for command in ("api", "worker", "up", "status", "key list"):
        for given in ([f"--redis-url={url}"], []):
            environment = {} if given else {"VINOQUEUE_REDIS_URL": url}
            outcome = CliRunner().invoke(main, [*command.split(), *given], env=environment)
            assert outcome.exit_code == 2, outcome.output
            assert "Invalid value for '--redis-url'" in outcome.output
            assert SECRET not in outcome.output
            assert "Error" in outcome.output


@pytest.mark.parametrize("character", "/#?%@")
def test_an_error_says_how_to_encode(character: str) -> None:
    with pytest.raises(ValueError, match=f"{character if character != '?' else '.'} as {quote(character, safe='')}"):
        parse_url(f"redis://:{SECRET}{character}{SECRET}@store:6379/0")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hunter2",
        "http://hunter2",
        "redis://",
        "redis://user:hunter2",
        "redis://store:hunter2",
        "redis://store:65536",
        "redis://store/hunter2",
        "redis://store/0?hunter2=1",
        "redis://store/0?socket_timeout=hunter2",
        "redis://store/0?ssl_cert_reqs=none",
        "rediss://store/0?ssl_cert_reqs=hunter2",
        "rediss://store/0?ssl_ca_certs=/hunter2.pem",
        "rediss://store/0?ssl_cert_reqs=none&ssl_check_hostname=true",
        "redis+sentinel://hunter2",
        "redis+sentinel://one/mymaster/hunter2",
        "hunter2+sentinel://one/mymaster",
        "unix://hunter2/run",
        "unix://",
    ],
)
def test_an_error_quotes_nothing(url: str) -> None:
    for made in (connect, raw_connection):
        with pytest.raises(ValueError, match=r"\w") as error:
            made(url)
        assert SECRET not in str(error.value)
        assert error.value.__cause__ is None


@pytest.mark.parametrize("scheme", ["rediss", "valkeys", "rediss+sentinel"])
def test_options_reach_every_kind_of_connection(scheme: str, tmp_path: Path) -> None:
    authority = tmp_path / "an authority.pem"
    authority.touch()
    options = f"ssl_ca_certs={quote(str(authority))}&ssl_cert_reqs=none&socket_timeout=1.5&db=4"
    url = f"{scheme}://store/mymaster?{options}" if "sentinel" in scheme else f"{scheme}://store?{options}"
    for pool in (connect(url).connection_pool, raw_connection(url)._pool):
        given = pool.connection_kwargs
        assert (given["ssl_ca_certs"], given["ssl_cert_reqs"]) == (str(authority), "none")
        assert (given["socket_timeout"], given["db"]) == (1.5, 4)
        pool.make_connection()  # refuses an argument that it does not know

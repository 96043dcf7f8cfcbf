"""What commands tell the store about who runs them."""

import pwd
from typing import NoReturn

import pytest

from cli.base.store_reader import actor


def test_a_user_without_a_name_is_a_number_in_the_audit_log(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(number: int) -> NoReturn:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr("os.getuid", lambda: 10001)
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    assert actor() == "cli uid 10001@here"

"""The access rules of docs/security.md, as an ACL file for a store."""

import re
from pathlib import Path

from tests.support.paths import ROOT
from tests.support.store import Store

_PAGE = ROOT / "docs" / "security.md"

PASSWORDS = {"api": "API_PASSWORD", "worker": "WORKER_PASSWORD", "admin": "ADMIN_PASSWORD"}
"""The roles, and their passwords in the page."""

TESTER = "tester"
"""User and password of the tests themselves, who may do everything."""


def page_rules() -> list[str]:
    """The rules of the page, one for each user."""
    found = re.search(r"<!-- acl.*?```\n(.*?)```", _PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1].splitlines()


def rules_file(folder: Path, default: str | None = None) -> str:
    """Write the rules of the page into an ACL file, with others for the user ``default`` if they are given; return the
    file's name."""
    rules = page_rules()
    assert rules[0].startswith("user default ")
    if default is not None:
        rules[0] = f"user default {default}"
    file = folder / "users.acl"
    file.write_text("\n".join([*rules, f"user {TESTER} on >{TESTER} ~* &* +@all", ""]))
    return str(file)


def url(store: Store, role: str) -> str:
    """The URL of the store for a role."""
    return f"redis://vinoqueue-{role}:{PASSWORDS[role]}@127.0.0.1:{store.port}/0"

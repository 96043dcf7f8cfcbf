"""The commands of docs/systemd.md, as they are written, on a Debian that systemd has booted.

``make machines`` runs this test.
"""

import re
from pathlib import Path

import pytest

from tests.support.debian import BareDebian, bootstrap, lacking
from tests.support.paths import ROOT
from tests.support.store_rules import rules_file

pytestmark = pytest.mark.bare

_SECTIONS = ("## Install", "## The store", "## API replicas and workers")
_CERTIFICATE = """
openssl req -x509 -newkey rsa:2048 -nodes -keyout store.key -out store.crt -days 2 -subj /CN=localhost
cp store.crt ca.pem
"""
_CHAT = """
until curl --silent --fail http://127.0.0.1:8000/ready; do
    systemctl is-active vinoqueue-store vinoqueue-api vinoqueue-worker@cpu || {
        journalctl --no-pager --lines 50; exit 1; }
    sleep 1
done
export OPENAI_API_KEY=$(cat key)
/opt/vinoqueue/bin/vinoqueue chat --url http://127.0.0.1:8000 --temperature 0 'Name the capital of France.'
systemctl stop vinoqueue-api vinoqueue-worker@cpu vinoqueue-store
systemctl is-failed vinoqueue-api vinoqueue-worker@cpu vinoqueue-store && exit 1
true
"""


def commands() -> list[str]:
    """The commands of each section of :data:`_SECTIONS`: indented lines, up to the first that edits something."""
    page = (ROOT / "docs" / "systemd.md").read_text(encoding="utf-8")
    found = []
    for title in _SECTIONS:
        section = page[page.index(title) :].partition("\n## ")[0]
        lines = re.findall(r"^    ((?:build/|python3|sudo).*\n)", section, re.MULTILINE)
        found.append("".join(line for line in lines if "vinoqueue-node" not in line))
    return found


def test_the_commands_of_the_page_install_and_serve(tmp_path: Path) -> None:
    if reason := lacking():
        pytest.skip(reason)
    tools = ("systemd-sysv", "dbus", "valkey-server", "openssl", "curl", "sudo")
    debian = BareDebian(bootstrap("trixie", tmp_path / "trixie", *tools), tmp_path / "copy")
    debian.put_checkout()
    install, store, serve = commands()
    packages, first, units = install.partition("sudo install -D ")
    assert first, "the packages come from an index, and the rest needs no network"
    debian.run(f"cd /home/user/vinoqueue && set -eux && {{\n{packages}}}", user="root")
    rules = Path(rules_file(tmp_path)).read_text(encoding="utf-8")
    keyed = re.sub(r"^(sudo .* key create .*)$", r"\1 >key", serve, flags=re.MULTILINE)
    script = f"cd vinoqueue\n{first}{units}cat >users.acl <<'END'\n{rules}END\n{_CERTIFICATE}{store}{keyed}{_CHAT}"
    assert "Paris" in debian.boot(script)

"""What messages and docs tell people to install exists: Vinoqueue itself is not in a package index."""

import re

from tests.support.paths import ROOT

PLACES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "api", "worker", "shared", "cli", "bench", "deploy")
TEXT = {".md", ".py", ".yaml"}


def test_no_text_says_to_install_vinoqueue_from_an_index() -> None:
    files = [
        file for place in PLACES for file in ((ROOT / place).rglob("*") if (ROOT / place).is_dir() else [ROOT / place])
    ]
    command = re.compile(r"pip install\b[^\n]*[\s'\"]vinoqueue\b")
    offenders = [
        str(file.relative_to(ROOT)) for file in files if file.suffix in TEXT and command.search(file.read_text("utf-8"))
    ]
    assert offenders == []


def test_every_make_target_that_the_docs_name_exists() -> None:
    targets = re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    named = {
        name
        for page in pages
        for name in re.findall(r"(?:`|^\s*)make ([a-z]+)\b", page.read_text("utf-8"), re.MULTILINE)
    }
    assert named
    assert named <= {*targets}

"""Links and paths in the documentation lead somewhere, and every page is in the site's navigation."""

import re
from pathlib import Path

from tests.support.paths import ROOT
from tools.docs.site_links import without_links_to_sources

CONFIGURATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    docs, site = tmp_path / "docs", tmp_path / "site"
    (docs / "sub").mkdir(parents=True)
    (tmp_path / "code.py").touch()
    (site / "sub").mkdir(parents=True)
    good = [
        "https://example.org/x", "../index.html", "#here", "../index.html#there", "page.html?q=1#here", "../../code.py",
        "/sub/page.html", "..", "mailto:a@example.org",
    ]  # fmt: skip
    bad = ["none.html", "../none.png", "#nowhere", "../index.html#nowhere", "../../none.py", "/none.html"]
    (site / "index.html").write_text('<h1 id="there">x</h1>', encoding="utf-8")
    page = site / "sub" / "page.html"
    links = "".join(f'<a class="a" href="{link}">to {link}</a>' for link in [*good, *bad])
    page.write_text(f'<h1 id="here">{links}</h1>', encoding="utf-8")
    assert list(without_links_to_sources(site, docs)) == [f"sub/page.html: {link}" for link in bad]
    text = page.read_text(encoding="utf-8")
    assert '"../../code.py"' not in text
    assert "to ../../code.py" in text
    assert 'href="../index.html#there"' in text


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"[\w/-]+\.md", CONFIGURATION))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    # Their own overviews list these.
    pages -= {page for page in pages if page.startswith(("benchmarks/", "decisions/")) and "README" not in page}
    assert pages == listed


def test_every_path_that_a_page_names_exists() -> None:
    """Pages of measurements and changes name what was there at their time."""
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    named = {
        (str(page.relative_to(ROOT)), path)
        for page in pages
        if "benchmarks" not in page.parts and page.name != "CHANGELOG.md"
        for path in re.findall(
            r"(?<![\w/])(?:api|worker|shared|cli|bench|deploy)/[\w/.-]+\.(?:py|lua)\b", page.read_text(encoding="utf-8")
        )
    }
    assert [one for one in sorted(named) if not (ROOT / one[1]).is_file()] == []

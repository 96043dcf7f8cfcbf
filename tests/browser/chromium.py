"""Debian's Chromium, driven by Playwright. Playwright's own browsers are not needed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
MISSING = "Chromium is missing; install it with 'apt-get install chromium'"


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window."""
    # Containers often forbid what the sandbox needs. The browser loads pages of this machine only.
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()

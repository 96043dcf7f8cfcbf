"""The desk of the web page: keys, usage and batches, with an admin key and without."""

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Dialog, expect

from tests.browser.conftest import simulated
from tests.browser.page import WebPage, web_page
from tests.support.fleet import Fleet, fleet


@pytest.fixture(scope="module")
def closed(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, str]]:
    """A fleet that needs keys, and a key with the scope admin."""
    with fleet(tmp_path_factory.mktemp("closed")) as running:
        secret = running.key("create", "--scope", "admin")
        running.worker(*simulated("sim", 4))
        running.api()
        yield running, secret


def enter(page: WebPage, secret: str) -> None:
    field = page.tab.get_by_label("API key", exact=True)
    field.fill(secret)
    field.press("Enter")


def test_keys_are_created_used_changed_and_revoked(browser: Browser, closed: tuple[Fleet, str]) -> None:
    running, admin = closed
    with web_page(browser, running) as page:
        tab = page.tab
        page.open("desk")
        expect(tab.get_by_role("alert").first).to_be_visible()
        page.errors.clear()  # the browser logs each 401 and 403
        enter(page, admin)
        tab.get_by_role("button", name="New key").click()
        tab.get_by_label("Name").fill("<b>team</b>")
        tab.get_by_role("spinbutton", name="Tokens per day").fill("40")
        tab.get_by_role("spinbutton", name="Requests per minute").fill("60")
        tab.get_by_role("button", name="Create key").click()
        dialog = tab.get_by_role("dialog", name="The new key")
        secret = dialog.locator("code").inner_text()
        tab.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        assert secret not in tab.content()
        status, _, _ = running.request(
            "POST",
            "/v1/chat/completions",
            '{"model": "sim", "messages": [{"role": "user", "content": "[[tokens 35]]"}]}',
            {"authorization": f"Bearer {secret}", "content-type": "application/json"},
        )
        assert status == 200
        row = tab.get_by_role("region", name="Table of API keys").get_by_role("row", name="<b>team</b>")

        def warned() -> bool:
            tab.reload()
            row.wait_for()
            return row.locator(".warning").count() > 0

        running.until(warned, "the use to be shown")
        expect(row).to_contain_text(re.compile(r"\d+ of 40"))
        expect(row).to_contain_text("60 requests/min")
        usage = tab.get_by_role("region", name="Table of usage")
        expect(usage.get_by_role("row", name=re.compile("team.* key-"))).to_have_count(1)
        assert Axe().run(tab, options={"resultTypes": ["violations"]}).response["violations"] == []

        row.get_by_role("button", name="Edit").click()
        limits = tab.get_by_role("dialog", name="Limits of <b>team</b>")
        expect(limits.get_by_role("spinbutton", name="Tokens per day")).to_have_value("40")
        limits.get_by_role("spinbutton", name="Tokens per day").fill("4000")
        limits.get_by_role("spinbutton", name="Requests per minute").fill("")
        assert Axe().run(tab, options={"resultTypes": ["violations"]}).response["violations"] == []
        limits.get_by_role("button", name="Save limits").click()
        expect(limits).to_be_hidden()
        expect(row).to_contain_text(re.compile(r"\d+ of 4,000"))
        expect(row).not_to_contain_text("requests/min")
        expect(row.locator(".warning")).to_have_count(0)

        def agree(question: Dialog) -> None:
            question.accept()

        tab.on("dialog", agree)
        row.get_by_role("button", name="Revoke").click()
        expect(row).to_have_count(0)
        page.errors.clear()
        tab.set_viewport_size({"width": 360, "height": 740})
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360
        assert Axe().run(tab, options={"resultTypes": ["violations"]}).response["violations"] == []


def test_a_worker_is_drained_and_resumed(browser: Browser, closed: tuple[Fleet, str]) -> None:
    running, admin = closed
    with web_page(browser, running) as page:
        page.open("desk")
        enter(page, admin)
        row = page.tab.get_by_role("region", name="Table of workers").locator("tbody tr")
        row.get_by_role("button", name="Drain").click()
        expect(row).to_contain_text("draining")
        row.get_by_role("button", name="Resume").click()
        expect(row).to_contain_text("serving")
        page.errors.clear()  # the browser logs each 401


def test_a_key_without_the_scope_sees_its_own_usage_and_no_keys(browser: Browser, closed: tuple[Fleet, str]) -> None:
    running, _ = closed
    plain = running.key("create")
    with web_page(browser, running) as page:
        page.open("desk")
        enter(page, plain)
        keys = page.tab.get_by_role("region", name="API keys", exact=True)
        expect(keys.get_by_role("alert")).to_contain_text("admin")
        expect(keys.get_by_role("button", name="Create key")).to_have_count(0)
        expect(page.tab.get_by_role("img", name=re.compile("Tokens per day"))).to_be_visible()
        page.errors.clear()

"""The desk of the web page, with an admin key and without."""

import json
import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Dialog, Page, expect

from tests.browser.conftest import simulated
from tests.browser.page import WebPage, borrowed, web_page
from tests.support.batches import chat_line, ended, submit
from tests.support.fleet import PATIENT, Fleet, fleet


@pytest.fixture(scope="module")
def closed(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, str]]:
    """A fleet that needs keys, and a key with the scope admin."""
    with fleet(tmp_path_factory.mktemp("closed"), lease=PATIENT) as running:
        secret = running.key("create", "--scope", "admin")
        running.worker(*simulated("sim", 4))
        running.api()
        yield running, secret


def enter(page: WebPage, secret: str) -> None:
    field = page.tab.get_by_label("API key", exact=True)
    field.fill(secret)
    field.press("Enter")


@pytest.fixture(scope="module")
def desk(browser: Browser, closed: tuple[Fleet, str]) -> Iterator[WebPage]:
    """A tab with the key, which agrees to what it is asked."""
    with web_page(browser, closed[0]) as page:
        page.context.add_init_script(f"sessionStorage.setItem('vinoqueue.key', '{closed[1]}')")
        page.tab.on("dialog", agree)
        yield page


def agree(question: Dialog) -> None:
    question.accept()


def check_sight(tab: Page) -> None:
    """Check with axe what the tab shows, and that it fits a phone."""
    assert Axe().run(tab, options={"resultTypes": ["violations"]}).response["violations"] == []
    tab.set_viewport_size({"width": 360, "height": 740})
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    assert Axe().run(tab, options={"resultTypes": ["violations"]}).response["violations"] == []


def chat(running: Fleet, secret: str) -> None:
    headers = {"authorization": f"Bearer {secret}", "content-type": "application/json"}
    body = '{"model": "sim", "messages": [{"role": "user", "content": "[[tokens 35]]"}]}'
    assert running.request("POST", "/v1/chat/completions", body, headers)[0] == 200


def test_keys_are_created_used_changed_and_revoked(browser: Browser, closed: tuple[Fleet, str]) -> None:
    running, admin = closed
    with web_page(browser, running) as page:
        tab = page.tab
        page.expected = (401,)
        page.open("desk")
        expect(tab.get_by_role("alert").first).to_be_visible()
        enter(page, admin)
        tab.get_by_role("button", name="New key").click()
        tab.get_by_label("Name").fill("<b>team</b>")
        tab.get_by_role("spinbutton", name="Tokens per day").fill("40")
        tab.get_by_role("spinbutton", name="Requests per minute").fill("60")
        tab.get_by_role("button", name="Create key").click()
        dialog = tab.get_by_role("dialog", name="The new key")
        secret = dialog.locator("code").inner_text()
        tab.keyboard.press("Escape")
        expect(tab.get_by_text(secret)).to_have_count(0)  # It is removed a moment after its dialog is hidden.
        assert secret not in tab.content()
        chat(running, secret)
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
        limits = tab.get_by_role("dialog", name="Edit <b>team</b>")
        expect(limits.get_by_role("spinbutton", name="Tokens per day")).to_have_value("40")
        limits.get_by_role("spinbutton", name="Tokens per day").fill("4000")
        limits.get_by_role("spinbutton", name="Requests per minute").fill("")
        assert Axe().run(tab, options={"resultTypes": ["violations"]}).response["violations"] == []
        limits.get_by_role("button", name="Save").click()
        expect(limits).to_be_hidden()
        expect(row).to_contain_text(re.compile(r"\d+ of 4,000"))
        expect(row).not_to_contain_text("requests/min")
        expect(row.locator(".warning")).to_have_count(0)

        tab.on("dialog", agree)
        row.get_by_role("button", name="Revoke").click()
        expect(row).to_have_count(0)
        check_sight(tab)


def test_teams_are_created_joined_changed_and_archived(desk: WebPage, closed: tuple[Fleet, str]) -> None:
    running, _ = closed
    secret = running.key("create", "--name", "anna")
    with borrowed(desk, "desk") as page:
        tab = page.tab
        tab.get_by_role("button", name="New team").click()
        form = tab.get_by_role("dialog", name="New team")
        form.get_by_label("Name").fill("Physics")
        form.get_by_role("spinbutton", name="Tokens per day").fill("40")
        form.get_by_role("spinbutton", name="Weight").fill("2")
        form.get_by_role("button", name="Create team").click()
        team = tab.get_by_role("region", name="Table of Teams").get_by_role("row", name="Physics")
        expect(team).to_contain_text("0 of 40")
        expect(team).to_contain_text("weight 2")

        key = tab.get_by_role("region", name="Table of API keys").get_by_role("row", name="anna")
        key.get_by_role("button", name="Edit").click()
        tab.get_by_role("combobox", name="Team").select_option("Physics")
        tab.get_by_role("spinbutton", name="Weight").fill("3")
        tab.get_by_role("button", name="Save").click()
        expect(key.get_by_role("cell", name="Physics")).to_be_visible()
        expect(key).to_contain_text("weight 3")
        chat(running, secret)

        def warned() -> bool:
            tab.reload()
            team.wait_for()
            return team.locator(".warning").count() > 0

        running.until(warned, "the use of the team to be shown")
        tab.get_by_role("region", name="Usage of").get_by_role("combobox").select_option("team")
        usage = tab.get_by_role("region", name="Table of usage")
        expect(usage.get_by_role("row", name=re.compile("Physics team-"))).to_have_count(1)

        team.get_by_role("button", name="Edit").click()
        form = tab.get_by_role("dialog", name="Edit Physics")
        form.get_by_label("Name").fill("Optics")
        form.get_by_role("spinbutton", name="Weight").fill("")
        form.get_by_role("button", name="Save").click()
        team = tab.get_by_role("region", name="Table of Teams").get_by_role("row", name="Optics")
        expect(team).not_to_contain_text("weight")
        expect(key.get_by_role("cell", name="Optics")).to_be_visible()
        check_sight(tab)

        team.get_by_role("button", name="Archive").click()
        expect(team).to_have_count(0)
        expect(key).to_contain_text("Optics (archived)")


def test_the_audit_log_is_shown_a_page_at_a_time(desk: WebPage, closed: tuple[Fleet, str]) -> None:
    running, _ = closed
    for number in range(20):
        running.key("create", "--name", f"audited {number}")
    with borrowed(desk, "desk") as page:
        tab = page.tab
        log = tab.get_by_role("region", name="Table of changes")
        rows = log.locator("tbody tr")
        expect(rows).to_have_count(20)
        expect(rows.first).to_contain_text("API key: created")
        expect(rows.first).to_contain_text("@")  # the command's user and host
        expect(rows.first).to_contain_text("audited 19")
        log.get_by_role("button", name="More").click()
        expect(rows.nth(20)).to_be_visible()
        tab.get_by_role("button", name="Revoke audited 0", exact=True).click()
        expect(rows.first).to_contain_text("API key: deleted")
        expect(rows.first).to_contain_text(re.compile("key-.*audited 0"))
        check_sight(tab)


def test_a_batch_is_cancelled(desk: WebPage, closed: tuple[Fleet, str]) -> None:
    running, admin = closed
    client = running.client().with_options(api_key=admin)
    batch = submit(client, [chat_line(str(number), "[[tokens 500]]", max_tokens=500) for number in range(40)])
    with borrowed(desk, "desk") as page:
        row = page.tab.get_by_role("region", name="Table of batches").get_by_role("row", name=batch.id)
        row.get_by_role("button", name="Cancel").click()
        expect(row).to_contain_text("cancel")
        check_sight(page.tab)
        assert ended(client, batch, running.logs).status == "cancelled"


def test_a_worker_is_drained_and_resumed(desk: WebPage) -> None:
    with borrowed(desk, "desk") as page:
        row = page.tab.get_by_role("region", name="Table of workers").locator("tbody tr")
        row.get_by_role("button", name="Drain").click()
        expect(row).to_contain_text("draining")
        row.get_by_role("button", name="Resume").click()
        expect(row).to_contain_text("serving")


def test_a_model_of_a_catalogue_is_loaded_and_unloaded(desk: WebPage, closed: tuple[Fleet, str]) -> None:
    running, admin = closed
    catalogue = running.folder / "models.toml"
    catalogue.write_text(
        '[models.small]\nsource = "[[tokens 4]]"\nmemory = "60MB"\nkeep = "1h"\n'
        '[models.never]\nsource = "[[hang load]]"\nmemory = "30MB"\n'
    )
    running.start("node", "--models", str(catalogue), "--memory", "100MB", "--engine", "simulated")
    with borrowed(desk, "desk") as page:
        row = page.tab.get_by_role("region", name="Table of models").get_by_role("row", name="small")
        expect(row.get_by_text("unloaded", exact=True)).to_be_visible()
        row.get_by_role("button", name="Load").click()
        expect(row.get_by_text("loaded", exact=True)).to_be_visible()
        expect(row).to_contain_text(": an operator has loaded it")
        check_sight(page.tab)
        page.open("live")
        memory = page.tab.get_by_role("meter", name="Memory of models")
        expect(memory).to_be_visible()
        check_sight(page.tab)
        body = {"model": "never", "input": "Hello", "background": True}
        headers = {"authorization": f"Bearer {admin}", "content-type": "application/json"}
        _, _, waiting = running.request("POST", "/v1/responses", json.dumps(body), headers)
        expect(page.tab.get_by_text("1 request waits for its model to be loaded.")).to_be_visible()
        expect(memory.locator("..")).to_contain_text("never 30 MB (loading: 1 request waits")
        expect(page.tab.get_by_role("region", name="never")).to_contain_text(": 1 request waits")
        running.request("POST", f"/v1/responses/{json.loads(waiting)['id']}/cancel", None, headers)
        page.open("desk")
        row.get_by_role("button", name="Unload").click()
        expect(row.get_by_text("unloaded", exact=True)).to_be_visible()


def test_a_key_without_the_scope_sees_its_own_usage_and_no_keys(browser: Browser, closed: tuple[Fleet, str]) -> None:
    running, _ = closed
    plain = running.key("create")
    with web_page(browser, running) as page:
        page.expected = (401, 403)
        page.open("desk")
        enter(page, plain)
        keys = page.tab.get_by_role("region", name="API keys", exact=True)
        expect(keys.get_by_role("alert")).to_contain_text("admin")
        expect(keys.get_by_role("button", name="New key")).to_have_count(0)
        for others in ("Teams", "Audit log"):
            expect(page.tab.get_by_role("region", name=others)).to_have_count(0)
        expect(page.tab.get_by_role("img", name=re.compile("Tokens per day"))).to_be_visible()

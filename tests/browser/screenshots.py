"""``make screenshots``: pictures of the web page for the documentation, with the real default model.

The fleet view is taken while a simulated worker dies under load. Run it on a quiet machine.
"""

import json
import re
import sys
import tempfile
import threading
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.browser.chromium import CHROMIUM, MISSING, chromium
from tests.browser.page import WebPage, web_page
from tests.support.batches import chat_line, ended, submit
from tests.support.fleet import Fleet, fleet

FOLDER = Path(__file__).parents[2] / "docs" / "images"
QUESTION = "Write a Python function that adds two numbers, and explain it."
MODEL = "SmolLM2-135M-Instruct"
BUSY = {"model": "sim", "messages": [{"role": "user", "content": "[[tokens 600]]"}], "max_tokens": 600}


def take_chat(browser: Browser, running: Fleet, name: str, *, width: int, height: int, dark: bool = False) -> None:
    """Take a picture of a conversation."""
    with web_page(browser, running, width=width, height=height, dark=dark) as page:
        page.open()
        page.choose(MODEL)
        page.set(Temperature="0", Max_tokens="120")
        answer = page.ask(QUESTION)
        expect(answer.get_by_text("tokens/s")).to_be_visible()
        page.tab.screenshot(path=FOLDER / f"{name}.png")


def take_settings(browser: Browser, running: Fleet) -> None:
    """Take pictures of an empty conversation and of the settings."""
    with web_page(browser, running) as page:
        page.open()
        page.choose(MODEL)
        page.tab.screenshot(path=FOLDER / "web-empty.png")
        page.tab.get_by_role("button", name="Settings", exact=True).click()
        page.tab.wait_for_timeout(300)
        page.tab.screenshot(path=FOLDER / "web-settings.png")


def take_desk(browser: Browser, running: Fleet) -> None:
    """Take pictures of the desk after some days of use. The fleet needs keys from then on."""
    secret = running.key("create", "--name", "operator", "--scope", "admin")
    running.until(lambda: running.status("/v1/models") == 401, "the API to need a key")
    headers = {"authorization": f"Bearer {secret}", "content-type": "application/json"}
    _, _, team = running.request("POST", "/v1/organization/projects", '{"name": "Research", "weight": 2}', headers)
    for name, day in (("web team", 1000), ("evaluation", 100_000), ("Ada", None)):
        body = {"name": name, "project_id": json.loads(team)["id"], "tokens_per_day": day, "requests_per_minute": 60}
        _, _, created = running.request("POST", "/v1/organization/admin_api_keys", json.dumps(body), headers)
        own = {**headers, "authorization": f"Bearer {json.loads(created)['value']}"}
        chat = {**BUSY, "messages": [{"role": "user", "content": "[[tokens 400]]"}], "max_tokens": 400}
        for _ in range(2):
            running.request("POST", "/v1/chat/completions", json.dumps(chat), own)
    with running.client().with_options(api_key=secret) as client:
        ended(client, submit(client, [chat_line(f"line-{number}") for number in range(30)]))
    for name, width, height in (("web-desk", 1280, 800), ("web-desk-360", 360, 740)):
        page = WebPage(browser, running, width=width, height=height)
        page.context.add_init_script(f"sessionStorage.setItem('vinoqueue.key', '{secret}')")
        page.open("desk")
        expect(page.tab.get_by_role("row", name="web team").first).to_be_visible()
        page.tab.wait_for_timeout(1000)
        page.tab.screenshot(path=FOLDER / f"{name}.png")
        page.context.close()


def take_fleet(browser: Browser, running: Fleet) -> None:
    """Take pictures of the fleet view: idle, busy, in the second after a worker was killed, and when its requests have
    moved."""

    def ask() -> None:
        running.request("POST", "/v1/chat/completions", json.dumps(BUSY))

    clients = [threading.Thread(target=ask) for _ in range(14)]
    with web_page(browser, running) as page, web_page(browser, running, width=360, height=740) as small:
        page.open("live")
        small.open("live")
        expect(page.tab.get_by_text("All is quiet")).to_be_visible()
        page.tab.wait_for_timeout(3000)
        page.tab.screenshot(path=FOLDER / "web-fleet-idle.png")
        for client in clients:
            client.start()
        expect(page.tab.locator("[data-job]")).to_have_count(len(clients))
        page.tab.wait_for_timeout(4000)
        page.tab.screenshot(path=FOLDER / "web-fleet-busy.png")
        victim = next(one["pid"] for one in running.workers() if one["model"] == "sim")
        next(process for process in running.processes if process.popen.pid == victim).kill()
        expect(page.tab.locator(".worker.troubled")).to_be_visible()
        page.tab.screenshot(path=FOLDER / "web-fleet-kill.png")
        expect(page.tab.locator(".moves li", has_text=re.compile("continues on")).first).to_be_visible()
        page.tab.wait_for_timeout(1500)
        page.tab.screenshot(path=FOLDER / "web-fleet-moved.png")
        small.tab.screenshot(path=FOLDER / "web-fleet-360.png")
    for client in clients:
        client.join()


CATALOGUE = """
[models.small]
source = "[[tokens 40]] [[load 4]]"
memory = "1GB"
keep = "always"
[models.chat]
source = "[[tokens 40]] [[load 4]]"
memory = "6GB"
[models.coder]
source = "[[tokens 40]] [[load 4]]"
memory = "7GB"
[models.vision]
source = "[[tokens 40]] [[load 4]]"
memory = "8GB"
"""


def take_memory(browser: Browser) -> None:
    """Take a picture of a host with a catalogue, while the model that is idle for longest makes room for another."""

    def ask(model: str) -> None:
        running.request("POST", "/v1/chat/completions", json.dumps({**BUSY, "model": model}))

    with tempfile.TemporaryDirectory() as folder, fleet(Path(folder)) as running:
        file = Path(folder) / "models.toml"
        file.write_text(CATALOGUE)
        options = ("--memory", "20GB", "--engine", "simulated", "--node", "host-1")
        running.start("node", "--models", str(file), *options)
        running.api()
        running.until(lambda: running.workers("serving"), "the small model to be loaded")
        for model in ("chat", "coder"):
            ask(model)
        last = threading.Thread(target=ask, args=("vision",))
        with web_page(browser, running) as page:
            page.open("live")
            memory = page.tab.get_by_role("meter", name="Memory of models").locator("..")
            expect(memory).to_contain_text("coder")
            last.start()
            expect(memory).to_contain_text("vision 8.0 GB (loading")
            page.tab.wait_for_timeout(1500)
            page.tab.screenshot(path=FOLDER / "web-fleet-memory.png")
        last.join()


def main() -> int:
    """Take all pictures; return the exit code."""
    if not CHROMIUM.exists():
        print(MISSING, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, fleet(Path(folder)) as running, chromium() as browser:
        options = ("--engine", "simulated", "--model", "sim", "--max-batch", "16", "--sim-step", "0.03")
        for number in ("1", "2"):
            running.start("worker", *options, "--node", f"host-{number}", "--worker-id", f"worker-{number}")
        running.start("worker", "--node", "host-3", "--worker-id", "worker-3")
        running.api()
        running.until(lambda: len(running.workers("serving")) == 3, "three workers to serve")
        take_chat(browser, running, "web-chat-light", width=1280, height=800)
        take_chat(browser, running, "web-chat-dark", width=1280, height=800, dark=True)
        take_chat(browser, running, "web-chat-360", width=360, height=740)
        take_settings(browser, running)
        take_fleet(browser, running)
        take_desk(browser, running)
        take_memory(browser)
    return 0


if __name__ == "__main__":
    sys.exit(main())

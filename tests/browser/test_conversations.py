"""The side bar of the web page, what is attached to messages, presets and shortcuts."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, FilePayload, Page, expect

from tests.browser.conftest import simulated
from tests.browser.page import WebPage, chat_page, kept, web_page
from tests.support.eventually import wait_until
from tests.support.fleet import Fleet
from tests.support.fleet_fixture import fleet_fixture

one_worker = fleet_fixture(*simulated("sim=[[tokens 4000]]", 4))  # long enough to be stopped


@pytest.fixture(scope="module")
def opened(browser: Browser, one_worker: Fleet) -> Iterator[WebPage]:
    with web_page(browser, one_worker) as opened:
        yield opened


@pytest.fixture
def page(opened: WebPage) -> Iterator[WebPage]:
    with chat_page(opened) as chat:
        yield chat


def act(page: WebPage, title: str, action: str) -> None:
    """Choose an action of a conversation's menu."""
    page.tab.get_by_role("button", name=f"Actions for {title}", exact=True).click()
    page.tab.get_by_role("menuitem", name=action, exact=True).click()


def converse(page: WebPage, *texts: str) -> None:
    """Have a conversation with each of these answers, the last one shown."""
    for text in texts:
        page.tab.get_by_role("button", name="New conversation").click()
        expect(page.ask(f"[[say {text}]]").get_by_text(text, exact=True)).to_be_visible()
        act(page, f"[[say {text}]]", "Rename")
        title = page.tab.get_by_label("Title of the conversation")
        title.fill(f"About {text}")
        title.press("Enter")


def test_conversations_are_found_renamed_pinned_and_deleted(page: WebPage) -> None:
    tab = page.tab
    converse(page, "apples", "pears", "plums")
    titles = tab.get_by_role("navigation", name="Conversations").locator("button.title")
    expect(titles).to_have_text(["About plums", "About pears", "About apples"])
    act(page, "About pears", "Rename")
    title = tab.get_by_label("Title of the conversation")
    title.fill("A mistake")
    title.press("Escape")
    expect(titles).to_have_text(["About plums", "About pears", "About apples"])
    act(page, "About apples", "Pin")
    expect(titles).to_have_text(["About apples", "About plums", "About pears"])
    tab.keyboard.press("Control+k")
    tab.keyboard.type("[[SAY PEARS")
    expect(titles).to_have_text(["About pears"])
    tab.get_by_label("Search conversations").fill("")
    tab.once("dialog", lambda question: question.dismiss())
    act(page, "About plums", "Delete")
    expect(titles).to_have_text(["About apples", "About plums", "About pears"])
    tab.once("dialog", lambda question: question.accept())
    act(page, "About plums", "Delete")
    expect(titles).to_have_text(["About apples", "About pears"])
    tab.reload()
    expect(titles).to_have_text(["About apples", "About pears"])


def test_each_conversation_keeps_what_is_not_sent(page: WebPage) -> None:
    message = page.tab.get_by_label("Message", exact=True)
    converse(page, "apples")
    message.fill("About apples: more")
    converse(page, "pears")
    message.fill("About pears: more")
    for name in ("apples", "pears"):
        page.tab.get_by_role("button", name=f"About {name}", exact=True).click()
        expect(message).to_have_value(f"About {name}: more")
    page.tab.get_by_role("button", name="New conversation").click()
    expect(message).to_have_value("")
    message.fill("never sent")
    page.tab.get_by_role("button", name="Explain").click()
    page.tab.get_by_role("button", name="Stop").click()
    expect(message).to_have_value("never sent")
    page.tab.get_by_role("button", name="New conversation").click()
    expect(message).to_have_value("")


def test_on_a_phone_enter_starts_a_line(browser: Browser, one_worker: Fleet) -> None:
    with web_page(browser, one_worker, width=360, height=740, touch=True) as page:
        page.open()
        page.choose("sim")
        message = page.tab.get_by_label("Message", exact=True)
        message.tap()
        page.tab.keyboard.type("one")
        page.tab.keyboard.press("Enter")
        page.tab.keyboard.type("two")
        expect(message).to_have_value("one\ntwo")
        page.tab.get_by_role("button", name="Send").tap()
        expect(page.tab.get_by_role("article", name="You")).to_contain_text("one\ntwo")
        page.tab.get_by_role("button", name="Stop").tap()


def test_a_message_that_is_edited_stays_in_view(browser: Browser, one_worker: Fleet) -> None:
    with web_page(browser, one_worker, width=360, height=400) as page:
        tab = page.tab
        page.open()
        page.choose("sim")
        expect(page.ask("[[tokens 60]]").get_by_text("+ 60 tokens")).to_be_visible()
        # The end of a conversation is followed while nearly all of it is in view.
        around, inside = "innerHeight - box.clientHeight", "box.firstElementChild.clientHeight"
        height = tab.get_by_role("log").evaluate(f"(box) => {around} + {inside}")
        tab.set_viewport_size({"width": 360, "height": height - 20})
        tab.get_by_role("button", name="Edit").click()
        tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        expect(tab.get_by_label("Edit the message")).to_be_in_viewport(ratio=1)


def test_an_exported_conversation_can_be_imported(page: WebPage, tmp_path: Path) -> None:
    tab = page.tab
    converse(page, "apples")
    with tab.expect_download() as markdown:
        act(page, "About apples", "Export as Markdown")
    assert Path(markdown.value.path()).read_text() == "# About apples\n\n## You\n\n[[say apples]]\n\n## sim\n\napples\n"
    with tab.expect_download() as exported:
        act(page, "About apples", "Export as JSON")
    kept = Path(exported.value.path())
    page.tab.once("dialog", lambda question: question.accept())
    act(page, "About apples", "Delete")
    expect(tab.get_by_text("Conversations stay in this browser.")).to_be_visible()
    damaged = tmp_path / "damaged.json"
    damaged.write_text(json.dumps({"form": "vinoqueue.conversations", "conversations": [{"title": 1}]}))
    importing = tab.get_by_label("Conversations to import")
    importing.set_input_files(damaged)
    expect(tab.get_by_role("alert")).to_have_text("damaged.json has no conversations of this page.")
    importing.set_input_files(kept)
    expect(tab.get_by_role("button", name="About apples", exact=True)).to_be_visible()
    expect(tab.get_by_role("article", name="Model").get_by_text("apples", exact=True)).to_be_visible()


DAMAGED: list[Any] = [
    None, True, 5, -1, "x", "../organization/admin_api_keys/key-1", [], [None], [5], {}, {"a": None},
    "resp_" + "0" * 32,
]  # fmt: skip


def damaged_conversations(seed: int) -> list[Any]:
    """Return conversations in each of which one member, at any depth, is something else."""
    chance = random.Random(seed)
    found: list[Any] = []
    answer = {
        "id": "2", "parent": "1", "role": "assistant", "text": "answer", "model": "sim", "reasoning": "because",
        "settings": {"model": "sim"}, "calls": [{"name": "f", "arguments": "{}"}], "finish": "length",
        "stats": {"firstToken": 0.1, "tokens": 3, "promptTokens": 2, "perSecond": 9.5},
        "attempts": [{"number": 2, "cause": "worker_lost"}], "stopped": True, "freed": 1.5,
    }  # fmt: skip
    asked = {
        "id": "1",
        "parent": "",
        "role": "user",
        "text": "asked",
        "files": [{"name": "a", "text": "b"}],
        "images": [],
    }
    whole: dict[str, Any] = {
        "title": "Damaged", "created": 1, "updated": 2, "settings": {"model": "sim"},
        "messages": {"1": asked, "2": answer},
        "shown": {"": "1", "1": "2"}, "next": 3,
    }  # fmt: skip
    places: list[tuple[Any, ...]] = [(name,) for name in whole]
    places += [
        ("messages", number, name)
        for number in ("1", "2")
        for name in [*whole["messages"][number], "pending", "response", "queue", "job", "seen"]
    ]
    places += [("messages", "2", "stats", "perSecond"), ("messages", "2", "calls", 0), ("messages", "2", "attempts", 0)]
    for place in places:
        made: Any = json.loads(json.dumps(whole | {"title": f"Damaged {len(found)}"}))
        at = made
        for name in place[:-1]:
            at = at[name]
        at[place[-1]] = chance.choice(DAMAGED)
        if place[-1] in ("response", "job", "seen"):
            at["pending"] = True
        found.append(made)
    return found


def test_damaged_conversations_are_imported_without_what_is_damaged_and_start_no_request(
    page: WebPage, tmp_path: Path
) -> None:
    tab = page.tab
    hostile = {
        "title": "Hostile",
        "messages": {
            "1": {"id": "1", "parent": "", "role": "user", "text": "asked"},
            "2": {
                "id": "2", "parent": "1", "role": "assistant", "text": "answer", "pending": True, "calls": [None],
                "stats": None, "attempts": 5, "response": "../organization/admin_api_keys/key-1",
            },
        },
        "shown": {"": "1", "1": "2"},
    }  # fmt: skip
    file = tmp_path / "damaged.json"
    conversations = [hostile, *damaged_conversations(46)]
    file.write_text(json.dumps({"form": "vinoqueue.conversations", "version": 1, "conversations": conversations}))
    importing = tab.get_by_label("Conversations to import")
    importing.set_input_files(file)
    titles = tab.get_by_role("navigation", name="Conversations").locator("button.title")
    expect(tab.get_by_role("button", name="Hostile", exact=True)).to_be_visible()
    tab.reload()
    expect(tab.get_by_role("button", name="Hostile", exact=True)).to_be_visible()
    for title in titles.all():
        title.click()
        expect(tab.get_by_role("article").first).to_be_visible()
    tab.get_by_role("button", name="Hostile", exact=True).click()
    expect(tab.get_by_role("article", name="Model")).to_contain_text("answer")
    expect(tab.get_by_role("alert")).to_have_text("The answer was not complete when it was exported.")
    sent = [one for one in page.requests if "/organization/" in one.url or "/responses" in one.url]
    assert not sent, [one.url for one in sent]


def test_a_view_that_fails_says_what_to_do(page: WebPage) -> None:
    tab = page.tab
    converse(page, "apples")
    tab.route("**/chat/message.js", lambda route: route.fulfill(
        content_type="text/javascript", body="export const Message = () => { throw new Error('broken'); };"
    ))  # fmt: skip
    tab.reload()
    expect(tab.get_by_role("alert")).to_contain_text("This can't be shown: broken. Load the page again")
    tab.get_by_role("button", name="New conversation").first.click()
    expect(tab.get_by_role("heading", name="Ask sim")).to_be_visible()
    assert all("broken" in error for error in page.errors)
    page.errors.clear()


def test_text_files_become_part_of_the_message(page: WebPage) -> None:
    tab = page.tab
    files = tab.get_by_label("Files to attach")
    refused: list[FilePayload] = [
        {"name": "large.txt", "mimeType": "text/plain", "buffer": b"a" * 300_000},
        {"name": "binary.bin", "mimeType": "", "buffer": b"\xff\x00"},
        {"name": "picture.png", "mimeType": "image/png", "buffer": b"x"},
    ]
    files.set_input_files(refused)
    expect(tab.get_by_role("alert")).to_contain_text("large.txt is larger than 256 KiB. binary.bin is neither")
    expect(tab.get_by_role("alert")).to_contain_text("sim takes no images")
    files.set_input_files({"name": "notes.md", "mimeType": "", "buffer": b"```\ncode\n```"})
    expect(tab.get_by_role("button", name="Remove notes.md")).to_be_visible()
    page.ask("[[say read]]")
    expect(tab.get_by_role("article", name="You").get_by_text("notes.md")).to_be_visible()
    sent = next(one.post_data_json for one in page.requests if one.method == "POST")
    assert "notes.md\\n````\\n```\\ncode\\n```\\n````\\n\\n[[say read]]" in json.dumps(sent)


def test_a_suggestion_is_sent_and_long_messages_are_folded_and_copied(page: WebPage) -> None:
    tab = page.tab
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.get_by_role("button", name="Explain").click()
    mine = tab.get_by_role("article", name="You")
    expect(mine).to_contain_text("Explain how a queue keeps a busy service fair.")
    tab.get_by_role("button", name="Stop").click()
    expect(tab.get_by_role("article", name="Model")).to_contain_text("stopped")
    long = "\n".join(["[[say short]]", *(f"line {number}" for number in range(60))])
    page.ask(long)
    expect(mine.nth(1).locator(".folded")).to_have_text(long)
    mine.nth(1).get_by_role("button", name="Show all").click()
    expect(mine.nth(1).locator(".folded")).to_have_count(0)
    mine.nth(1).get_by_role("button", name="Copy").click()
    tab.wait_for_function("text => navigator.clipboard.readText().then((copied) => copied === text)", arg=long)


def test_the_model_picker_says_what_each_model_does(page: WebPage) -> None:
    states = {"sim": None, "ready": "loaded", "coming": "loading", "cold": "unloaded", "broken": "failed"}
    found = [{"id": name} | ({"status": {"value": state}} if state else {}) for name, state in states.items()]
    page.tab.route("**/v1/models", lambda route: route.fulfill(json={"object": "list", "data": found}))
    page.tab.reload()
    expect(page.tab.get_by_label("Model", exact=True).locator("option")).to_have_text(
        ["sim", "ready", "coming (is loading)", "cold (loads when asked)", "broken (failed to load)"]
    )


def test_the_page_says_why_no_model_answers_and_finds_it_later(page: WebPage, one_worker: Fleet) -> None:
    tab = page.tab
    picker, why = tab.get_by_label("Model", exact=True), tab.get_by_role("alert")
    page.expected = (503,)
    replies: list[tuple[int, object]] = [(503, {"error": {"message": "The store is gone."}})]
    tab.route("**/v1/models", lambda route: route.fulfill(status=replies[-1][0], json=replies[-1][1]))
    tab.evaluate("localStorage.clear()")
    tab.reload()
    expect(why).to_have_text("The store is gone.")
    replies.append((200, {"object": "list", "data": []}))
    expect(why).to_have_count(0)
    expect(picker.locator("option")).to_have_text(["No model is served"])
    late = one_worker.start("worker", *simulated("late=[[load 1000]]", 1))
    try:
        expect(picker.locator("option")).to_have_text(["late is loading"])
    finally:
        late.kill()
    tab.get_by_label("Message", exact=True).fill("hello")
    tab.keyboard.press("Enter")
    expect(why).to_have_text("No model is served now.")
    tab.unroute("**/v1/models")
    expect(picker).to_have_value("sim")
    expect(why).to_have_count(0)


def test_settings_can_be_kept_as_a_preset(page: WebPage) -> None:
    tab = page.tab
    page.set(System_prompt="Translate.", Temperature="0.3")
    settings = tab.get_by_role("button", name="Settings", exact=True)
    settings.click()
    explained = tab.get_by_role("dialog", name="Settings").locator("[aria-describedby]")
    expect(explained).to_have_count(11)
    for field in explained.all():
        expect(field).to_have_accessible_description(re.compile(r"\w+ \w+ .*\."))
    tab.get_by_label("Name", exact=True).fill("translator")
    tab.get_by_role("button", name="Save preset").click()
    tab.get_by_role("button", name="Reset all").click()
    expect(tab.get_by_label("System prompt")).to_have_value("")
    tab.keyboard.press("Escape")
    tab.reload()
    settings.click()
    tab.get_by_label("Preset", exact=True).select_option("translator")
    expect(tab.get_by_label("System prompt")).to_have_value("Translate.")
    expect(tab.get_by_label("Temperature")).to_have_value("0.3")


def test_the_keyboard_does_what_its_list_says(page: WebPage) -> None:
    tab = page.tab
    message = tab.get_by_label("Message", exact=True)
    expect(message).to_be_focused()
    message.fill("a draft?")
    tab.get_by_role("log").focus()
    tab.keyboard.press("?")
    expect(tab.get_by_role("dialog", name="Keyboard shortcuts")).to_contain_text("Stop the answer")
    tab.keyboard.press("Escape")
    tab.get_by_role("log").focus()
    tab.keyboard.press("/")
    expect(message).to_be_focused()
    expect(message).to_have_value("a draft?")
    tab.reload()
    expect(message).to_have_value("a draft?")
    tab.keyboard.press("Control+b")
    expect(tab.get_by_role("complementary")).to_be_hidden()
    tab.reload()
    expect(tab.get_by_role("complementary")).to_be_hidden()
    tab.keyboard.press("Control+b")
    page.ask("[[tokens 4000]]")
    tab.keyboard.press("Escape")
    expect(tab.get_by_role("article", name="Model")).to_contain_text("stopped")


def test_two_tabs_follow_one_answer(page: WebPage) -> None:
    first, second = page.tab, page.context.new_page()
    page.expected = (404,)  # the answer is deleted, perhaps while the other tab reads it
    second.on("pageerror", lambda error: page.errors.append(str(error)))
    answers = [tab.get_by_role("article", name="Model") for tab in (first, second)]
    page.ask("[[tokens 80]]")
    expect(answers[0].locator("p").first).to_have_text(re.compile(r"(\w+ ){10}"))
    second.goto(page.base)
    for shown in answers:
        expect(shown.get_by_text("+ 80 tokens")).to_be_visible()
    # The tab that has not asked shows the answer too.
    box = second.get_by_label("Message", exact=True)
    box.fill("[[tokens 80]]")
    box.press("Enter")
    for shown in answers:
        expect(shown.nth(1).get_by_text("+ 80 tokens")).to_be_visible()
    # Not the inner text, which what is not on the screen does not always have.
    texts = [words for shown in answers for words in map(str.split, shown.locator(".markdown").all_text_contents())]
    assert {len(words) for words in texts} == {len(texts[0])}
    assert texts[:2] == texts[2:]
    # Either tab stops it.
    page.ask("[[tokens 4000]]")
    expect(answers[1].nth(2).locator("p").first).to_have_text(re.compile(r"(\w+ ){10}"))
    second.get_by_role("button", name="Stop").click()
    for shown in answers:
        expect(shown.nth(2)).to_contain_text("stopped")
    for tab in (first, second):
        tab.reload()
    for tab, shown in zip((first, second), answers, strict=True):
        expect(shown.nth(2)).to_contain_text("stopped")
        assert [words.split() for words in shown.locator(".markdown").all_text_contents()][:2] == texts[:2]
        expect(tab.get_by_role("alert")).to_have_count(0)


def messages(tab: Page) -> list[tuple[bool | None, int]]:
    """Whether each conversation that the browser keeps is pinned, and its number of messages."""
    return [(one.get("pinned"), len(one["messages"])) for one in json.loads(kept(tab))]


def test_a_tab_keeps_what_another_has_added(browser: Browser, one_worker: Fleet) -> None:
    with web_page(browser, one_worker) as page:
        # The tabs do not hear of each other, as one that saves at this moment may not have yet.
        page.context.add_init_script("BroadcastChannel = class { postMessage() {} addEventListener() {} };")
        first, second = page.tab, page.context.new_page()
        page.open()
        page.choose("sim")
        page.ask("[[say plums]]")
        answers = [tab.get_by_role("article", name="Model") for tab in (first, second)]
        expect(answers[0]).to_contain_text(" tokens")
        second.goto(page.base)
        expect(answers[1]).to_contain_text(" tokens")
        box = second.get_by_label("Message", exact=True)
        box.fill("[[say pears]]")
        box.press("Enter")
        expect(answers[1].nth(1)).to_contain_text(" tokens")
        act(page, "[[say plums]]", "Pin")
        wait_until(lambda: messages(first) == [(True, 4)], "both changes in the store")
        first.reload()
        expect(answers[0].nth(1)).to_contain_text("pears")
        act(page, "[[say plums]]", "Unpin")

"""The web page as a person uses it, and what its browser noticed."""

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, ViewportSize, expect

from tests.support.eventually import PATIENCE
from tests.support.fleet import Fleet

expect.set_options(timeout=PATIENCE * 1000)

_KEPT = """async () => {
    const opened = indexedDB.open("vinoqueue");
    await new Promise((resolve) => opened.onsuccess = resolve);
    const read = opened.result.transaction("conversations").objectStore("conversations").getAll();
    await new Promise((resolve) => read.onsuccess = resolve);
    opened.result.close();
    return JSON.stringify(read.result);
}"""


def kept(tab: Page) -> str:
    """The conversations that the browser keeps, as JSON."""
    text: str = tab.evaluate(_KEPT)
    return text


class WebPage:
    """One tab with the page. Its browser has no conversations yet."""

    def __init__(
        self,
        browser: Browser,
        fleet: Fleet,
        *,
        width: int = 1280,
        height: int = 800,
        dark: bool = False,
        touch: bool = False,
    ) -> None:
        self.base = f"http://127.0.0.1:{fleet.port}/"
        self._size: ViewportSize = {"width": width, "height": height}
        self.context = browser.new_context(
            viewport=self._size,
            color_scheme="dark" if dark else "light",
            has_touch=touch,
            is_mobile=touch,
        )
        self.context.set_default_timeout(PATIENCE * 1000)
        self.tab = self.context.new_page()
        self.errors: list[str] = []
        self.expected: tuple[int, ...] = ()
        """Statuses of responses that are part of the test. The browser logs each as an error, at some later time."""
        self.requests: list[Request] = []
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("console", self._on_console)
        self.tab.on("request", lambda request: self.requests.append(request))

    def open(self, view: str = "chat") -> None:
        """Load the page."""
        self.tab.goto(f"{self.base}#{view}")

    def check(self) -> None:
        """Fail if its browser noticed an error, or a request left for elsewhere."""
        assert not self.errors, self.errors
        assert self.foreign_requests() == []

    def empty(self) -> None:
        """Leave nothing of a test to the next one but what is in caches: another context would take seconds."""
        for other in self.context.pages:
            if other is not self.tab:
                other.close()
        self.tab.unroute_all()
        self.context.clear_permissions()
        self.tab.set_viewport_size(self._size)
        self.tab.goto(f"{self.base}live")
        self.tab.evaluate("sessionStorage.clear()")
        storage = {"origin": self.base.removesuffix("/"), "storageTypes": "all"}
        self.context.new_cdp_session(self.tab).send("Storage.clearDataForOrigin", storage)
        self.errors.clear()
        self.requests.clear()
        self.expected = ()

    def choose(self, model: str) -> None:
        """Choose a model that is served."""
        self.tab.get_by_label("Model").select_option(model)

    def set(self, **settings: str) -> None:
        """Fill fields of the settings, by their labels with underscores."""
        self.tab.get_by_role("button", name="Settings", exact=True).click()
        for name, value in settings.items():
            self.tab.get_by_label(name.replace("_", " "), exact=True).fill(value)
        self.tab.keyboard.press("Escape")

    def ask(self, text: str) -> Locator:
        """Send a message; return the place of the answer."""
        before = self.tab.get_by_role("article", name="Model").count()
        box = self.tab.get_by_label("Message", exact=True)
        box.fill(text)
        box.press("Enter")
        answer = self.tab.get_by_role("article", name="Model").nth(before)
        expect(answer).to_be_visible()
        return answer

    def foreign_requests(self) -> list[str]:
        """The addresses of all requests that left for elsewhere."""
        return [one.url for one in self.requests if not one.url.startswith((self.base, "data:", "blob:"))]

    def _on_console(self, message: ConsoleMessage) -> None:
        expected = any(f"responded with a status of {status} " in message.text for status in self.expected)
        if message.type in ("error", "warning") and not expected:
            self.errors.append(message.text)


@contextmanager
def web_page(
    browser: Browser, fleet: Fleet, *, width: int = 1280, height: int = 800, dark: bool = False, touch: bool = False
) -> Iterator[WebPage]:
    """A tab that is closed with the block, and then checked."""
    page = WebPage(browser, fleet, width=width, height=height, dark=dark, touch=touch)
    try:
        yield page
        page.check()
    finally:
        page.context.close()


@contextmanager
def borrowed(page: WebPage, view: str) -> Iterator[WebPage]:
    """A view in a tab that is checked and emptied with the block."""
    try:
        page.open(view)
        yield page
        page.check()
    finally:
        page.empty()


@contextmanager
def chat_page(page: WebPage) -> Iterator[WebPage]:
    """A chat with the model ``sim``, as in :func:`borrowed`."""
    with borrowed(page, "chat"):
        page.choose("sim")
        yield page

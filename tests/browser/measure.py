"""``python -m tests.browser.measure``: how fast the page is on this machine, with a simulated worker.

Prints when the page paints first and when one can write, and the durations of frames while a conversation of 5,000
tokens scrolls, while it grows and when it is complete. A frame of 60 per second takes 16.7 ms.
"""

import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page

from tests.browser.chromium import CHROMIUM, MISSING, chromium
from tests.browser.page import chat_page, web_page
from tests.support.fleet import Fleet, fleet

LOADS = 9
TOKENS = 5000
WORKER = ("--engine", "simulated", "--model", "sim", "--max-batch", "8", "--sim-step", "0.004")

WATCH = """new MutationObserver((_, observer) => {
    if (!document.querySelector(".composer")) return;
    window.writable = performance.now();
    observer.disconnect();
}).observe(document, { childList: true, subtree: true });"""

SCROLL = """async () => {
    const box = document.querySelector(".messages");
    const times = [];
    let last = await new Promise(requestAnimationFrame);
    const end = last + 4000;
    while (last < end) {
        const now = await new Promise(requestAnimationFrame);
        times.push(now - last);
        last = now;
        box.scrollTop = (box.scrollHeight - box.clientHeight) * (0.5 - 0.5 * Math.cos(now / 400));
    }
    return times;
}"""


def loads(browser: Browser, running: Fleet) -> None:
    """Print the times of first loads, without the browser's cache."""
    paints: list[float] = []
    writable: list[float] = []
    for _ in range(LOADS):
        with web_page(browser, running) as page:
            page.tab.add_init_script(WATCH)
            page.open()
            page.tab.locator(".composer").wait_for()
            paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            paints.append(float(page.tab.evaluate(paint)))
            writable.append(float(page.tab.evaluate("window.writable")))
    for name, times in (("first content", paints), ("one can write", writable)):
        print(f"{name}: median {statistics.median(times):.0f} ms, slowest of {LOADS} {max(times):.0f} ms")


def frames(name: str, tab: Page) -> None:
    """Print the durations of frames while the conversation scrolls up and down."""
    times = sorted(tab.evaluate(SCROLL))
    share = sum(time < 17.5 for time in times) / len(times)
    median, late = statistics.median(times), times[int(0.95 * len(times))]
    print(f"{name}: {len(times)} frames, median {median:.1f} ms, 95 % {late:.1f} ms, {share:.0%} in time")


def main() -> int:
    """Measure; return the exit code."""
    if not CHROMIUM.exists():
        print(MISSING, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, fleet(Path(folder)) as running, chromium() as browser:
        running.worker(*WORKER)
        running.api()
        loads(browser, running)
        with web_page(browser, running) as tab, chat_page(tab) as page:
            page.set(Max_tokens=str(TOKENS))
            answer = page.ask(f"[[tokens {TOKENS}]]")
            answer.get_by_text("first token").wait_for()
            page.tab.wait_for_timeout(8000)
            frames("while it grows", page.tab)
            answer.get_by_text(f"+ {TOKENS} tokens").wait_for()
            frames(f"{TOKENS} tokens", page.tab)
    return 0


if __name__ == "__main__":
    sys.exit(main())

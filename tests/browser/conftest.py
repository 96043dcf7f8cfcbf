"""A browser, and a fleet that its pages show."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import CHROMIUM, MISSING, chromium
from tests.support.fleet import Fleet, exact, fleet
from tests.support.pictures import SHAPES_MODEL


def simulated(name: str, slots: int) -> tuple[str, ...]:
    """Options of a simulated worker."""
    return ("--engine", "simulated", "--model", name, "--max-batch", str(slots), "--sim-step", "0.05")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip(MISSING)
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def shown(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Workers of three models: two simulated ones of ``sim``, one of ``narrow`` with one slot, and one that takes
    images."""
    with fleet(tmp_path_factory.mktemp("shown")) as running:
        for options in (simulated("sim", 4), simulated("sim", 4), simulated("narrow", 1)):
            running.start("worker", *options)
        running.start("worker", *exact(f"shapes={SHAPES_MODEL}", "--cache-size", "1"))
        running.api()
        running.until(lambda: len(running.workers("serving")) == 4, "four workers to serve")
        yield running

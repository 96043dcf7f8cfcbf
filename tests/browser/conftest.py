"""A browser, and a fleet that its pages show."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import CHROMIUM, MISSING, chromium
from tests.support.fleet import Fleet, exact, fleet
from tests.support.pictures import SHAPES_MODEL


def simulated(name: str, slots: int, step: float = 0.05) -> tuple[str, ...]:
    """Options of a simulated worker."""
    return ("--engine", "simulated", "--model", name, "--max-batch", str(slots), "--sim-step", str(step))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip(MISSING)
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def shown(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Workers of four models: two simulated ones of ``sim``, one of ``narrow`` with one slot, one of ``quick``, and one
    that takes images."""
    with fleet(tmp_path_factory.mktemp("shown")) as running:
        for options in (*[simulated("sim", 4)] * 2, simulated("narrow", 1), simulated("quick", 1, 0.001)):
            running.start("worker", *options)
        running.start("worker", *exact(f"shapes={SHAPES_MODEL}", "--cache-size", "1"))
        running.api()
        running.until(lambda: len(running.workers("serving")) == 5, "five workers to serve")
        yield running

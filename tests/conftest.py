"""Settings of all tests."""

import gc
import os
from collections.abc import Generator, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from shared.runtime.placement import own_cpus
from tests.support.fleet import Fleet, fleet
from tests.support.fuzzing import FACTOR, cases

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

# Machines differ in speed, and no test asserts times.
# `make test` tries the same few cases each time, `make faults` many new ones.
settings.register_profile(
    "any-machine",
    deadline=None,
    max_examples=cases(20),
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=FACTOR not in os.environ,
)
settings.load_profile("any-machine")


@pytest.fixture
def empty_fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A store and nothing else."""
    with fleet(tmp_path) as running:
        yield running


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Keep modules and tests, which live as long as the process, out of garbage collections: a seventh of the unit
    tests' CPU time."""
    gc.disable()
    _compile_share(session.config)
    collected = yield
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()
    return collected


def _compile_share(config: pytest.Config) -> None:
    """Import a share of the modules first, so that each is compiled by one process of pytest-xdist, not by all.

    That takes longer than the rest of the collection. Where the modules are compiled already, it changes nothing.
    """
    process: dict[str, Any] = getattr(config, "workerinput", {})
    if not process or config.args != config.getini("testpaths"):
        return
    files = sorted(Path(__file__).parent.glob("**/test_*.py"))
    for file in files[int(process["workerid"].removeprefix("gw")) :: process["workercount"]]:
        with suppress(Exception, pytest.skip.Exception):  # Faults are reported when the module is collected.
            import_module(".".join(file.relative_to(config.rootpath).with_suffix("").parts))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Alternate files that keep all CPUs busy with the model and files that often wait; the short unit tests come last.

    So processes of pytest-xdist seldom all compute or all wait, and end at about the same time.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    busy = [file for file in files if "acceptance" in file.parts]
    short = [file for file in files if "unit" in file.parts]
    waiting = [file for file in files if file not in {*busy, *short}]
    pairs = zip_longest(busy, waiting)
    order = [*(file for pair in pairs for file in pair if file), *short]
    items[:] = [item for file in order for item in files[file]]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return two for each CPU, because many tests wait; one for each where there are unit tests only."""
    only_unit = all("unit" in Path(argument.partition("::")[0]).parts for argument in config.args)
    return len(own_cpus()) * (1 if only_unit else 2)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadFileScheduling":
    """Run all files that share something that takes long to start or import in one process."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduler(LoadFileScheduling):  # type: ignore[misc] # xdist has no type hints
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return _shared(config.rootpath / file) or file

    return Scheduler(config, log)


@cache
def _shared(file: Path) -> str | None:
    # The process that schedules knows the names of tests, not what they use.
    text = file.read_text()
    return next(
        (
            name
            for name in ("real_fleet", "real_engine", "anthropic_types", "tiny_oracle", "bare_debian")
            if name in text
        ),
        None,
    )

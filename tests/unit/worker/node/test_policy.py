"""The placement policy: which model gets the memory of a node."""

from typing import Any

import pytest

from worker.node.devices import HOST
from worker.node.policy import KnownModel, PolicyTimes, plan

RULES = PolicyTimes(spread_wait=10, swap_wait=20, min_residence=20, batch_idle=10)


def model(name: str, **fields: Any) -> KnownModel:
    values: dict[str, Any] = {
        "priority": 1.0,
        "keep": 900.0,
        "least": 0,
        "most": 1,
        "memory": 4,
        "load_seconds": 5.0,
        "idle": 60.0,
    }
    if fields.get("here", "absent") != "absent":
        values |= {"workers": 1, "resident": 60.0}
    values["tokens"] = 256 * (fields.get("waiting") or fields.get("waiting_batch", 0))
    values |= fields
    values.setdefault("serving", values.get("workers", 0))
    if isinstance(values["memory"], int):
        values["memory"] = {HOST: values["memory"]}
    return KnownModel(name=name, **values)


def decide(*models: KnownModel, capacity: int = 8, gpu: int = 0) -> tuple[list[str], list[str]]:
    """Return the models that are loaded, and those that are unloaded."""
    found = plan(models, {HOST: capacity, "GPU.0": gpu}, RULES)
    return sorted(found.load), sorted(found.unload)


@pytest.mark.parametrize(
    ("models", "load", "unload"),
    [
        pytest.param([model("a", waiting=1)], ["a"], [], id="waiting requests load a model"),
        pytest.param([model("a")], [], [], id="a model without requests is not loaded"),
        pytest.param([model("a", least=1)], ["a"], [], id="one that is always there is"),
        pytest.param([model("a", waiting=1, workers=1)], [], [], id="one that another node has is not"),
        pytest.param(
            [model("a", waiting=1, workers=1, waited=11, most=2)], ["a"], [], id="unless its requests wait long"
        ),
        pytest.param([model("a", waiting=1, workers=1, waited=11)], [], [], id="and it may have several workers"),
        pytest.param([model("a", waiting=1, blocked=True)], [], [], id="one that has failed pauses"),
        pytest.param([model("a", here="loaded", idle=901)], [], ["a"], id="idle models are unloaded"),
        pytest.param([model("a", here="loaded", idle=901, least=1)], [], [], id="not those that the fleet must have"),
        pytest.param([model("a", here="loaded", idle=901, least=1, workers=2)], [], ["a"], id="but further workers"),
        pytest.param(
            [model("a", here="loaded", idle=901, least=1, workers=2, serving=1)], [], [], id="not while those leave"
        ),
        pytest.param([model("a", here="loaded", idle=901, waiting=1)], [], [], id="not while requests wait"),
        pytest.param([model("a", here="loaded", idle=0, keep=0)], [], [], id="nor while they run"),
        pytest.param([model("a", here="loaded", idle=1e9, keep=float("inf"))], [], [], id="nor those always there"),
        pytest.param([model("a", here="loaded", unwanted=True, idle=0)], [], ["a"], id="a changed entry unloads"),
    ],
)
def test_one_model(models: list[KnownModel], load: list[str], unload: list[str]) -> None:
    assert decide(*models) == (load, unload)


def test_a_waiting_model_takes_the_memory_of_the_one_idle_for_longest() -> None:
    old, young = model("old", here="loaded", idle=50), model("young", here="loaded", idle=40)
    assert decide(old, young, model("a", waiting=1)) == ([], ["old"])
    assert plan([old, young, model("a", waiting=1)], {HOST: 8}, RULES).reserved_for == {"old": "a"}


def test_it_waits_while_another_leaves() -> None:
    leaving, idle = model("leaving", here="unloading"), model("idle", here="loaded")
    assert decide(leaving, idle, model("a", waiting=1)) == ([], [])


def test_nothing_is_unloaded_in_vain() -> None:
    idle, busy = model("idle", here="loaded"), model("busy", here="loaded", idle=0)
    assert decide(idle, busy, model("large", waiting=1, memory=8)) == ([], [])


def test_a_model_without_room_lacks_what_models_hold_that_never_give_way() -> None:
    fixed, idle, busy = (
        model("fixed", least=1, here="loaded"),
        model("idle", here="loaded"),
        model("b", idle=0, here="loaded"),
    )
    short = plan([fixed, idle, busy, model("large", waiting=1, memory=6)], {HOST: 12}, RULES).short
    assert short == {"large": {HOST: 12 - fixed.memory[HOST]}}


@pytest.mark.parametrize(
    ("waited", "waiting", "resident", "gives_way"),
    [
        (19, 0, 60, False),
        (21, 0, 19, False),
        (21, 0, 29, False),
        (21, 0, 31, True),
        (21, 3, 89, False),
        (21, 3, 91, True),
    ],
)
def test_a_busy_model_gives_way_past_the_wait_and_its_residence(
    waited: float, waiting: int, resident: float, gives_way: bool
) -> None:
    busy = model("busy", here="loaded", idle=0, waiting=waiting, resident=resident, load_seconds=30)
    found = decide(busy, model("a", waiting=1, waited=waited), capacity=4)
    assert found == ([], ["busy"] if gives_way else [])


def test_a_model_that_is_always_there_never_gives_way() -> None:
    fixed = model("fixed", here="loaded", least=1, keep=float("inf"))
    assert decide(fixed, model("a", waiting=1, waited=1e6), capacity=4) == ([], [])


def test_batch_requests_load_a_model_and_take_memory_only_of_one_idle_for_a_while() -> None:
    batch = model("batch", waiting_batch=5, waited=1e6)
    assert decide(batch) == (["batch"], [])
    assert decide(batch, model("idle", here="loaded", idle=11), capacity=4) == ([], ["idle"])
    assert decide(batch, model("recent", here="loaded", idle=9), capacity=4) == ([], [])
    assert decide(batch, model("busy", here="loaded", idle=0), capacity=4) == ([], [])


def test_the_greatest_need_comes_first() -> None:
    many, few = model("many", waiting=10, waited=5), model("few", waiting=1, waited=5)
    assert decide(few, many, capacity=4) == (["many"], [])
    assert decide(model("few", waiting=1, waited=5, priority=20), many, capacity=4) == (["few"], [])
    long = model("long", waiting=2, waited=5, tokens=20_000)
    assert decide(many, long, capacity=4) == (["long"], [])
    slow = model("slow", waiting=10, waited=5, load_seconds=600)
    assert decide(slow, few, capacity=4) == (["few"], [])
    assert decide(model("batch", waiting_batch=1000, waited=60), few, capacity=4) == (["few"], [])


def test_room_that_is_made_for_one_is_not_given_to_another() -> None:
    idle = model("idle", here="loaded", memory=4)
    large, small = model("large", waiting=10, memory=8), model("small", waiting=1, memory=4)
    assert decide(idle, large, small) == ([], ["idle"])


def on_gpu(name: str, memory: int = 8, **fields: Any) -> KnownModel:
    return model(name, memory={HOST: 1, "GPU.0": memory}, **fields)


def test_a_model_on_a_gpu_is_loaded_beside_those_that_fill_the_host() -> None:
    assert decide(model("cpu", here="loaded", memory=7), on_gpu("gpu", waiting=1), gpu=8) == (["gpu"], [])


def test_only_a_model_on_the_same_gpu_gives_way_to_one() -> None:
    cpu, old = model("cpu", here="loaded", idle=500), on_gpu("old", here="loaded", idle=5)
    assert decide(cpu, old, on_gpu("gpu", waiting=1), gpu=8) == ([], ["old"])
    assert decide(cpu, on_gpu("gpu", waiting=1), gpu=7) == ([], [])


def test_a_gpu_that_is_too_full_keeps_no_model_from_the_host() -> None:
    grown = on_gpu("grown", memory=9, here="loaded", idle=0)
    assert decide(grown, model("cpu", waiting=1), gpu=8) == (["cpu"], [])
    assert decide(grown, model("old", here="loaded"), model("cpu", waiting=1), gpu=8, capacity=5) == ([], ["old"])


def test_models_on_the_host_give_way_to_each_other_before_those_on_a_gpu() -> None:
    gpu, cpu = on_gpu("gpu", here="loaded", idle=500), model("cpu", here="loaded", idle=50)
    assert decide(gpu, cpu, model("a", waiting=1), capacity=5, gpu=8) == ([], ["cpu"])
    fixed = model("cpu", here="loaded", least=1)
    assert decide(gpu, fixed, model("a", waiting=1, memory=1), capacity=5, gpu=8) == ([], ["gpu"])

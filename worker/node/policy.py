"""The placement policy: which models a node loads and unloads. Pure functions of what is known at one moment."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from shared.protocol.registry import UnloadCause
from worker.node.devices import Memory, fits, remaining

Residence = Literal["absent", "loading", "loaded", "unloading"]


_RESIDENCE_IN_LOADS = 3
"""How many times its load time a model with waiting requests stays loaded at least. Where loads take a third of the
maximum wait, 3 complete up to 1.4 times as many requests as 1 (``test_policy_under_load``); more than 3 complete no
more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTimes:
    """Times of the policy, in seconds."""

    spread_wait: float
    """Wait after which another node loads a model that has workers."""
    swap_wait: float
    """Wait after which a model takes the memory of one that has requests."""
    min_residence: float
    """Time for which a loaded model with requests keeps its memory; at least as long as its load has taken, and
    :data:`_RESIDENCE_IN_LOADS` times as long while requests wait for it."""
    batch_idle: float
    """Time without requests after which a model gives way to batch requests for another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """What a node knows about one model of its catalogue. Sizes are in bytes, times in seconds."""

    name: str
    priority: float
    keep: float
    least: int
    most: int
    memory: Memory
    """What it takes on this node, or would take."""
    load_seconds: float
    waiting: int = 0
    """Waiting jobs, without batch requests; an operator's command to load it counts as one."""
    waiting_batch: int = 0
    waited: float = 0.0
    """Time since jobs wait without a pause."""
    tokens: int = 0
    """Estimated tokens of the waiting jobs; those of batch requests count only if nothing else waits."""
    requested: bool = False
    """Whether an operator has commanded to load it."""
    workers: int = 0
    """Workers in the whole fleet that serve it, load it or leave."""
    serving: int = 0
    """Workers in the whole fleet that serve it."""
    here: Residence = "absent"
    resident: float = 0.0
    """Time since it is loaded."""
    idle: float = 0.0
    """Time since its last request on this node; 0 while it has some."""
    blocked: bool = False
    """Whether it may not be loaded, because it has failed or is too large."""
    unwanted: bool = False
    """Whether its entry has changed."""

    @property
    def spare(self) -> bool:
        """Whether the fleet can do without its worker on this node."""
        return not self.least or self.serving > self.least

    @property
    def busy(self) -> bool:
        """Whether it has requests on this node, or some wait for it."""
        return self.idle == 0 or self.waiting > 0 or self.waiting_batch > 0

    @property
    def need(self) -> tuple[bool, float]:
        """How much it needs a worker: waiting tokens times their wait, against the time to load it.

        Batch requests count only among models for which nothing else waits.
        """
        return self.waiting > 0, self.priority * self.tokens * (1 + self.waited) / (1 + self.load_seconds)


class Unload(NamedTuple):
    """Why a model is unloaded; ``reason`` is human-readable."""

    cause: UnloadCause
    reason: str


@dataclass(slots=True)
class MemoryPlan:
    """What to do now. ``load`` and ``unload`` map names of models to the reason."""

    load: dict[str, str] = field(default_factory=dict)
    unload: dict[str, Unload] = field(default_factory=dict)
    """Models to unload, idle or to make room."""
    awaited: dict[str, str] = field(default_factory=dict)
    """Models for which room is being made, mapped to the reason."""
    reserved_for: dict[str, str] = field(default_factory=dict)
    """Models that are unloaded to make room, mapped to the one that gets it."""
    short: dict[str, Memory] = field(default_factory=dict)
    """Models for which there is no room yet, mapped to what those leave that never give way."""


def plan(models: Sequence[KnownModel], capacity: Memory, rules: PolicyTimes) -> MemoryPlan:
    """Return what a node with ``capacity`` for its ``models`` does."""
    result = MemoryPlan()
    for model in models:
        if model.here == "loaded" and model.unwanted:
            result.unload[model.name] = Unload("changed", "its entry has changed")
        elif model.here == "loaded" and not model.busy and model.idle > model.keep and model.spare:
            result.unload[model.name] = Unload("idle", "no request for a while")
    free = remaining(capacity, (model.memory for model in models if model.here != "absent"))
    leaving: Counter[str] = Counter()
    for model in models:
        if model.here == "unloading" or model.name in result.unload:
            leaving.update(model.memory)
    wanted = [model for model in models if _is_wanted(model, rules)]
    for model in sorted(wanted, key=lambda model: model.need, reverse=True):
        reason = _reason(model)
        if fits(model.memory, free):
            free.subtract(model.memory)
            result.load[model.name] = reason
        elif model.workers == 0:
            missing = Counter({place: size - free[place] - leaving[place] for place, size in model.memory.items()})
            victims = _victims(model, models, missing, rules, result.unload)
            if victims is None:
                fixed = (other.memory for other in models if other.here != "absent" and not other.spare)
                result.short[model.name] = remaining(capacity, fixed)
                continue
            for victim in victims:
                result.unload[victim.name] = Unload("swap", f"makes room for {model.name}")
                result.reserved_for[victim.name] = model.name
            result.awaited[model.name] = reason
            # The room is reserved: what others get must not delay this model.
            free.subtract(model.memory)
            for victim in victims:
                leaving.update(victim.memory)
    return result


def _is_wanted(model: KnownModel, rules: PolicyTimes) -> bool:
    if model.here != "absent" or model.blocked or model.unwanted or model.workers >= model.most:
        return False
    if model.workers == 0:
        return model.waiting + model.waiting_batch > 0 or model.least > 0
    return model.workers < model.least or (model.waiting > 0 and model.waited > rules.spread_wait)


def _reason(model: KnownModel) -> str:
    if model.requested:
        return "an operator has loaded it"
    jobs = model.waiting + model.waiting_batch
    return f"{jobs} request{'s wait' if jobs > 1 else ' waits'}" if jobs else "it is kept loaded"


def _victims(
    model: KnownModel, models: Iterable[KnownModel], missing: Counter[str], rules: PolicyTimes, leaving: Iterable[str]
) -> list[KnownModel] | None:
    """Return the models that give what is ``missing`` to ``model``, or ``None`` if they may not, or are too small.

    Idle ones go first, those on the same device before others, the one idle for longest before the others, then those
    with the least need.
    """
    candidates = [other for other in models if other.here == "loaded" and other.name not in leaving]
    candidates = [other for other in candidates if _gives_way(other, model, rules)]
    same = model.memory.keys()
    candidates.sort(key=lambda other: (other.busy, other.memory.keys() != same, -other.idle, other.need))
    victims: list[KnownModel] = []
    for candidate in candidates:
        if any(missing[place] > 0 for place in candidate.memory):
            victims.append(candidate)
            missing.subtract(candidate.memory)
    return victims if all(size <= 0 for size in missing.values()) else None


def _gives_way(other: KnownModel, model: KnownModel, rules: PolicyTimes) -> bool:
    if not other.spare:
        return False
    if not other.busy:
        return model.waiting > 0 or other.idle > rules.batch_idle
    # Otherwise models that compete for the same memory would be loaded for longer than they are used.
    residence = max(rules.min_residence, other.load_seconds * (_RESIDENCE_IN_LOADS if other.waiting else 1))
    return model.waiting > 0 and model.waited > rules.swap_wait and other.resident > residence

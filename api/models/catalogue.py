"""Models of nodes' catalogues: nodes load them by demand, so requests for them wait while no worker serves them."""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from shared.protocol.registry import DeclaredModel, ModelInfo, NodeInfo, WorkerInfo

_STATES = ("loaded", "loading", "unloading", "unloaded", "failed")
"""From the best to the worst."""


class CatalogueModel(msgspec.Struct, frozen=True):
    """A declared model in the whole fleet.

    ``state`` is the best of all nodes. ``problem`` says why it cannot be loaded, and is empty while a node can.
    ``waited`` is for how many seconds requests wait while no worker serves it. ``ready_in`` is in how many seconds the
    model is loaded, ``None`` if that is unknown.
    """

    info: ModelInfo
    state: str
    problem: str = ""
    waited: float = 0.0
    ready_in: float | None = None


def catalogue(
    nodes: Iterable[NodeInfo], workers: Iterable[WorkerInfo], remembered: Mapping[str, ModelInfo]
) -> dict[str, CatalogueModel]:
    """Return the models that live ``nodes`` declare, by name. One that any of ``workers`` serves is loaded.

    Where entries differ, that of the node which started last applies. What ``remembered`` says of a model, a worker has
    announced after it had loaded the model, so it takes precedence over what a node expects.
    """
    declared: dict[str, list[tuple[NodeInfo, DeclaredModel]]] = {}
    for node in sorted(nodes, key=lambda node: node.started, reverse=True):
        for model in node.models:
            declared.setdefault(model.name, []).append((node, model))
    served = {worker.model for worker in workers if worker.status == "serving"}
    return {name: _combined(entries, name in served, remembered.get(name)) for name, entries in declared.items()}


def _combined(
    entries: list[tuple[NodeInfo, DeclaredModel]], served: bool, remembered: ModelInfo | None
) -> CatalogueModel:
    node, newest = entries[0]
    counts = Counter(model.status for _, model in entries)
    state = "loaded" if served else next((state for state in _STATES if counts[state]), "unloaded")
    info = remembered or ModelInfo(
        name=newest.name,
        created=int(node.started),
        context_length=newest.context_length,
        fingerprint=newest.fingerprint,
        modalities=newest.modalities,
        kinds=newest.kinds,
        temperature=newest.temperature,
        top_p=newest.top_p,
        max_tokens=newest.max_tokens,
    )
    detail = "; ".join(f"{node.host}: {model.detail}" for node, model in entries if model.status == state)
    waited = 0.0 if served else max(model.waited for _, model in entries)
    detail = detail if state in ("loading", "failed") or (state == "unloaded" and waited) else ""
    problem = detail if state == "failed" else ""
    if others := sorted(node.host for node, model in entries if model.digest != newest.digest):
        conflict = f"{', '.join(others)} {'has' if len(others) == 1 else 'have'} another entry for it than {node.host}"
        detail = "; ".join(filter(None, (detail, conflict)))
    info = msgspec.structs.replace(info, aliases=newest.aliases, state=state, nodes=counts[state], detail=detail)
    ready_in = min((model.ready_in for _, model in entries if model.ready_in), default=None)
    return CatalogueModel(info, state, problem, waited, ready_in if state == "loading" else None)

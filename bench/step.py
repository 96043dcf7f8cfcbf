"""step: what the engine's process does between two steps of the model, as a share of its time, and what the logits hook
costs.

Reading what the model has made, turning it into text, finding stop strings and sending it to the supervisor all hold
up the next step, because the pipeline's calls hold Python's lock and stand in one thread. The hook, and the limits that
it enforces, are part of a step.
"""

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from bench.engine_load import EngineLoad, Taken
from bench.report import median_and_spread, ratios, save, table, turns
from shared.protocol.request import Constraint
from shared.runtime.settings import EngineSettings
from worker.engine.options import EngineOptions
from worker.grammar.schema import schema_grammar
from worker.json_schema.lengths import LengthLimits
from worker.model.local import resolve

TOKENS = 32
BATCHES = (1, 8, 32)
MAX_SECONDS = 150.0
"""Seconds after which no further turn begins."""

_OPEN = '{"type":"array","items":{"type":"string"},"minItems":100}'
_LIMITED = '{"type":"array","items":{"type":"string","maxLength":9},"minItems":100}'
"""Schemas whose text does not end within ``TOKENS`` tokens."""


class Variant(NamedTuple):
    """An engine's settings, and fields of the sequences that it generates."""

    name: str
    settings: Mapping[str, Any]
    fields: Mapping[str, Any]


def _grammar(schema: str, *, limited: bool = False) -> dict[str, Any]:
    constraint = Constraint(kind="grammar", value=schema_grammar(schema))
    return {"constraint": constraint, "length_limits": (LengthLimits("", schema),) if limited else ()}


VARIANTS = (
    Variant("no hook", {"logits": "off"}, {}),
    Variant("hook", {"logits": "auto"}, {}),
    Variant("no hook, prompt lookup", {"logits": "off", "prompt_lookup": True}, {}),
    Variant("hook, prompt lookup", {"logits": "auto", "prompt_lookup": True}, {}),
    Variant("no hook, grammar", {"logits": "off"}, _grammar(_OPEN)),
    Variant("hook, grammar with maxLength", {"logits": "auto"}, _grammar(_LIMITED, limited=True)),
)
"""Each with a hook is compared with the one before it."""


def run(folder: Path, *, runs: int = 5, sizes: Sequence[int] = BATCHES) -> dict[str, Any]:
    """Measure batches of ``sizes``, print the table, and return the result. ``folder`` is not used."""
    rows = asyncio.run(_measure(runs, sizes))
    print(table(f"step: between two steps of the model, {TOKENS} tokens each, medians of at most {runs} runs", rows))
    save("step", {"rows": rows})
    return {"rows": rows}


async def _measure(runs: int, sizes: Sequence[int]) -> list[dict[str, object]]:
    model = resolve("default")
    taken: dict[tuple[int, str], list[Taken]] = {(size, variant.name): [] for size in sizes for variant in VARIANTS}
    async with AsyncExitStack() as stack:
        loads: dict[str, EngineLoad] = {}
        for variant in VARIANTS:
            if str(variant.settings) not in loads:
                settings = EngineSettings(max_batch=max(sizes), **variant.settings)
                options = EngineOptions.from_settings(settings, path=str(model.path), context_length=1024)
                loads[str(variant.settings)] = await stack.enter_async_context(EngineLoad(options))
        for turn in turns(runs, MAX_SECONDS):
            for size in sizes:
                for variant in VARIANTS if turn % 2 else reversed(VARIANTS):
                    measured = await loads[str(variant.settings)].run(size, TOKENS, **variant.fields)
                    if turn:
                        taken[size, variant.name].append(measured)
    rows: list[dict[str, object]] = []
    for (size, name), measurements in taken.items():
        share, least, most = median_and_spread([one.between / one.seconds for one in measurements])
        times = [one.computing / one.steps for one in measurements]
        if name.startswith("no hook"):
            reference = times
        rows.append(
            {
                "batch": size,
                "engine": name,
                "step ms": statistics.median(times) * 1e3,
                "ratio": ratios(times, reference),
                "between µs": statistics.median(one.between / one.steps for one in measurements) * 1e6,
                "share": f"{share:.2%}",
                "spread": f"{least:.2%}-{most:.2%}",
            }
        )
    return rows

"""tuning: the pipeline's settings against each other, each in a process of its own, run in turns on the same prompts.

``vinoqueue bench tuning`` measures what the defaults gain on this machine. A row's ratio is to the first one,
which is the defaults.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report import ratios, save, table
from bench.turns import long_in_turns, rates_in_turns
from shared.runtime.settings import EngineSettings
from worker.engine.options import EngineOptions
from worker.model.local import resolve

TOKENS = 128
BATCHES = (1, 8, 32)
LONG_BATCH, LONG_WORDS = 4, 400
"""Answers at once behind long prompts, and the words of these: about 1,300 tokens."""

CANDIDATES: Mapping[str, Mapping[str, Any]] = {
    "defaults": {},
    "the file's own weights": {"weights": "original"},
    "the file's own weights in f32": {
        "weights": "original",
        "plugin_config": '{"INFERENCE_PRECISION_HINT": "f32"}',
    },
    "f32": {"plugin_config": '{"INFERENCE_PRECISION_HINT": "f32"}'},
    "bf16": {"plugin_config": '{"INFERENCE_PRECISION_HINT": "bf16"}'},
    "no dynamic quantisation": {"plugin_config": '{"DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}'},
    "dynamic quantisation by 32": {"plugin_config": '{"DYNAMIC_QUANTIZATION_GROUP_SIZE": 32}'},
    "dynamic quantisation by 192": {"plugin_config": '{"DYNAMIC_QUANTIZATION_GROUP_SIZE": 192}'},
    "keys in the KV cache by channel": {"plugin_config": '{"KEY_CACHE_QUANT_MODE": "BY_CHANNEL"}'},
    "KV cache in f16": {"plugin_config": '{"KV_CACHE_PRECISION": "f16"}'},
    "KV cache in f32": {"plugin_config": '{"KV_CACHE_PRECISION": "f32"}'},
    "threads not pinned": {"plugin_config": '{"ENABLE_CPU_PINNING": false}'},
    "one thread": {"plugin_config": '{"INFERENCE_NUM_THREADS": 1}'},
    "hint: throughput": {"plugin_config": '{"PERFORMANCE_HINT": "THROUGHPUT"}'},
    "one thread samples": {"plugin_config": '{"sampler_num_threads": 1}'},
    "no prefix caching": {"prefix_caching": False},
    "cache that grows": {"cache_size": 0},
    "1,024 prompt tokens a step": {"prefill_tokens": 1024},
    "prompt lookup": {"prompt_lookup": True},
}

_LOADED_AT_ONCE = 3
"""In addition to the first one; more would fill small hosts."""


def run(folder: Path, *, runs: int = 5, candidates: Sequence[str] = tuple(CANDIDATES)) -> dict[str, Any]:
    """Measure ``candidates`` (the first is what the others are compared with), print the table, return the result.

    A few are loaded at a time, because each is a copy of the model in memory. ``folder`` is not used.
    """
    base, *others = candidates
    rows = []
    for first in range(0, len(others), _LOADED_AT_ONCE):
        rows += _compare((base, *others[first : first + _LOADED_AT_ONCE]), runs)
    title = (
        f"tuning: tokens/s as ratios to '{base}', {TOKENS} tokens each, medians of {runs} turns; "
        f"long: steps/s behind prompts of {LONG_WORDS} words, and first tokens/s"
    )
    print(table(title, rows))
    save("tuning", {"rows": rows})
    return {"rows": rows}


def _compare(names: Sequence[str], runs: int) -> list[dict[str, object]]:
    model = resolve("default")
    options = {
        name: EngineOptions.from_settings(
            EngineSettings(max_batch=max(BATCHES), **CANDIDATES[name]),
            path=str(model.path),
            context_length=model.context_length,
        )
        for name in names
    }
    rates = rates_in_turns(options, batches=BATCHES, tokens=TOKENS, runs=runs)
    long = long_in_turns(options, batch=LONG_BATCH, tokens=TOKENS, runs=runs, words=LONG_WORDS)
    base = names[0]
    return [
        {
            "setting": name,
            **{f"at {batch}": ratios(rates[name][batch], rates[base][batch]) for batch in BATCHES},
            f"at {LONG_BATCH}, long": ratios(long[name].steps, long[base].steps),
            "first tokens": ratios(long[name].firsts, long[base].firsts),
        }
        for name in names[1:]
    ]

"""forms: the forms in which a model can be served on this host, each with 1, 4 and 8 streams, within two minutes.

The engine alone runs with the settings of each form, one after the other. A form gets an equal share of the time that
is left; one that is not ready by then, for instance because int8 weights are made first, is not measured.
"""

import threading
import time
from pathlib import Path
from typing import Any

from bench.prompts import distinct_prompts
from bench.reference_engine import ReferenceEngine, engine_options
from bench.report import save, table
from worker.model.local import LocalModel, resolve

SECONDS = 110.0
"""Time for all forms, of which the last one takes some more to end."""
STREAMS = (1, 4, 8)
_WORDS = 40
"""Words of a prompt."""
_TOKENS = (8, 64)
"""Least and most tokens of an answer."""
_SHARE = 0.025
"""Share of a form's time that one stream's answer takes. Where one runs at a time, two turns take 28 times as long."""

Form = dict[str, Any]
"""Settings that make a form; those that it does not name have their defaults."""


def forms_of(model: LocalModel) -> list[Form]:
    """Return the forms of a model. The weights of a folder are served as they are."""
    weights: list[Form] = [{}] if model.path.is_dir() else [{"weights": "original"}, {"weights": "int8"}]
    return [*weights, {"engine": "stateful"}, {"prompt_lookup": True}]


def flags(form: Form) -> str:
    """Return a form's settings as options of a command."""
    named = [f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}") for name, value in form.items()]
    return " ".join(named)


def run(_: Path, *, model: str = "default", seconds: float = SECONDS) -> dict[str, Any]:
    """Measure, print the table and the settings to write, and return the result."""
    served = resolve(model)
    rows: list[dict[str, Any]] = []
    ends, forms = time.monotonic() + seconds, forms_of(served)
    for at, form in enumerate(forms):
        left = (ends - time.monotonic()) / (len(forms) - at)
        rows.append({"settings": flags(form), **_measure(served, form, left)})
    print(table(f"forms: {served.name}, tokens/s of the engine alone, answers of {_TOKENS[1]} tokens at most", rows))
    for streams in ("1 stream", f"{STREAMS[-1]} streams"):
        rate, settings = max((row[streams], row["settings"]) for row in rows)
        if rate:
            print(f"Fastest with {streams}: vinoqueue worker --model {model} {settings}")
    save("forms", {"model": served.name, "rows": rows})
    return {"rows": rows}


def _measure(model: LocalModel, form: Form, seconds: float) -> dict[str, float]:
    """Return the better rates of two turns of a form, as far as they are known after ``seconds``; 0 are not."""
    options = engine_options(model, max_batch=STREAMS[-1], **form)
    rates = dict.fromkeys(("1 stream", "its prompt again", *(f"{streams} streams" for streams in STREAMS[1:])), 0.0)
    began = time.monotonic()
    engine = ReferenceEngine(options, wait=False)
    timer = threading.Timer(seconds, engine.kill)
    timer.start()
    try:
        engine.wait()
        first = engine.run(distinct_prompts(0, 1, _WORDS), _TOKENS[0], 1)
        one = first["seconds"] / max(first["tokens"], 1)
        tokens = int(min(max((seconds + began - time.monotonic()) * _SHARE / one, _TOKENS[0]), _TOKENS[1]))
        for turn, (name, streams) in enumerate(list(zip(rates, (1, *STREAMS), strict=True)) * 2, start=1):
            prompts = distinct_prompts(turn, streams, _WORDS)
            if name == "its prompt again":
                prompts = [f"Repeat this text word by word: {prompt}" for prompt in prompts]
            result = engine.run(prompts, tokens, len(prompts))
            rates[name] = max(rates[name], result["tokens"] / result["seconds"])
    except (ValueError, BrokenPipeError):  # it has ended, by itself or by the timer
        late = time.monotonic() - began >= seconds
        print(f"{flags(form)}: {'the time is over' if late else 'it can not be loaded; its own message is above'}")
    finally:
        timer.cancel()
        engine.stop()
    return rates

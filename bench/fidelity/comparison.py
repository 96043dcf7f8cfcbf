"""Measures forms of structured output beside plain text and GenAI's own JSON schemas, on one model.

With greedy decoding, every token that was more likely than the chosen one was excluded by the grammar. So the engine's
log probabilities, which are those before any mask, tell how much the grammar has taken from the model.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench.fidelity.cases import Case, Task, tasks
from bench.fidelity.reading import call_of, fields_of, right
from bench.report import save, table
from shared.protocol.request import ChatRequest, Constraint, Message, Sampling, Tokenize
from shared.runtime.settings import EngineSettings
from worker.engine.protocol import EngineSequence, OutputGrammar
from worker.grammar.plan import Plan
from worker.model.local import default_model
from worker.openvino.engine import OpenVINOEngine
from worker.openvino.options import OpenVINOOptions
from worker.openvino.prompt_maker import load_prompt_maker
from worker.prompt.maker import TemplatePromptMaker
from worker.prompt.messages import PromptOptions

CASES = 100
BATCH = 16
CONTEXT = 2048
_TOP = 20
"""Number of most likely tokens to compare with the chosen one."""


class Form(NamedTuple):
    """A form of output: ``fields`` of the request, and a change to its plan."""

    name: str
    fields: Callable[[Task], dict[str, Any]]
    change: Callable[[Task, Plan], Plan] = lambda task, plan: plan


class Answer(NamedTuple):
    """One answer. ``own``: its tokens are those that the tokenizer makes of its text. ``logprobs`` are those of its
    tokens before the mask, ``masked`` the number of tokens before which the mask removed more than half of the
    probability."""

    text: str
    ended: bool
    own: bool
    logprobs: tuple[float, ...]
    masked: int


def run(folder: Path, *, runs: int = CASES) -> dict[str, Any]:
    """Measure with ``runs`` cases of each task, print a table after each, and return the result."""
    path = str(default_model())
    maker = load_prompt_maker(PromptOptions(engine="auto", path=path, context_length=CONTEXT))
    settings = EngineSettings(precision="exact", cache_size=1, max_batch=BATCH)
    engine = OpenVINOEngine(
        OpenVINOOptions.from_settings(settings, path=path, context_length=CONTEXT), lambda stage: None
    )
    rows: list[dict[str, object]] = []
    for task in tasks(runs):
        own = []
        for form in _forms(task):
            began = time.monotonic()
            answers = list(_answers(engine, maker, task, form))
            own.append(_row(task, form, answers) | {"seconds": round(time.monotonic() - began, 1)})
        print(table(f"fidelity, {task.name}: {runs} cases, greedy, {BATCH} at a time", own), flush=True)
        rows += own
    save("fidelity", {"rows": rows})
    return {"rows": rows}


def _forms(task: Task) -> list[Form]:
    if task.tools:
        return [
            Form("plain text", _tools, lambda task, plan: _constrained(plan, None)),
            Form("tools, auto", _tools),
            Form("tools, required", lambda task: _tools(task) | _REQUIRED),
            Form("json_schema of GenAI", _tools, _with_own_schema),
        ]
    return [
        Form("plain text", lambda task: {}),
        Form("json_object", lambda task: {"constraint": Constraint(kind="json_object")}),
        Form("json_schema", lambda task: {"constraint": Constraint(kind="json_schema", value=json.dumps(task.schema))}),
        Form("json_schema of GenAI", lambda task: {}, _with_own_schema),
    ]


_REQUIRED = {"tool_choice": "required", "parallel_tool_calls": False}


def _tools(task: Task) -> dict[str, Any]:
    return {"tools": tuple(task.tools)}


def _constrained(plan: Plan, grammar: OutputGrammar | None) -> Plan:
    return msgspec.structs.replace(plan, grammar=grammar, triggers=(), length_limits=())


def _with_own_schema(task: Task, plan: Plan) -> Plan:
    """Return the plan with the schema as OpenVINO GenAI reads it itself."""
    part = {"type": "json_schema", "json_schema": task.schema}
    tag = {"type": "structural_tag", "format": part}
    return _constrained(plan, OutputGrammar(json.dumps(tag), tagged=True))


def _answers(engine: OpenVINOEngine, maker: TemplatePromptMaker, task: Task, form: Form) -> Iterator[Answer]:
    for first in range(0, len(task.cases), BATCH):
        cases = task.cases[first : first + BATCH]
        for number, case in enumerate(cases):
            engine.add(_sequence(maker, task, form, case, number))
        texts, reasons = [""] * len(cases), ["stop"] * len(cases)
        tokens: list[list[int]] = [[] for _ in cases]
        logprobs: list[list[float]] = [[] for _ in cases]
        masked = [0] * len(cases)
        while engine.busy():
            for output in engine.step():
                delta = output.delta
                if delta is not None:
                    texts[output.number] += delta.text
                    tokens[output.number] += delta.tokens
                    logprobs[output.number] += delta.logprobs
                    masked[output.number] += sum(
                        _removed(own, [other.logprob for other in top])
                        for own, top in zip(delta.logprobs, delta.top, strict=True)
                    )
                reasons[output.number] = output.reason or reasons[output.number]
            assert not engine.refused()
        for text, reason, made, own, count in zip(texts, reasons, tokens, logprobs, masked, strict=True):
            ended = reason == "stop"
            spelled = made[:-1] if ended else made  # without the token that ends the text
            yield Answer(text, ended, spelled == _tokens_of(maker, text), tuple(own), count)


def _sequence(maker: TemplatePromptMaker, task: Task, form: Form, case: Case, number: int) -> EngineSequence:
    message = Message(role="user", content=case.prompt)
    request = ChatRequest(model="m", messages=(message,), **form.fields(task))
    plan = form.change(task, maker.plan(request))
    return EngineSequence(
        number=number,
        prompt=maker.prepare(request).tokens,
        sampling=Sampling(temperature=0.0, seed=1, max_tokens=task.max_tokens, logprobs=True, top_logprobs=_TOP),
        grammar=plan.grammar,
        shown_tokens=plan.shown_tokens,
        triggers=plan.triggers,
        length_limits=plan.length_limits,
    )


def _tokens_of(maker: TemplatePromptMaker, text: str) -> list[int]:
    """Return the tokenizer's own tokens of ``text``."""
    request = ChatRequest(model="m", prompts=(text,), work=Tokenize(add_special_tokens=False))
    return list(maker.prepare(request).tokens)


def _removed(own: float, others: Sequence[float]) -> bool:
    """Whether the tokens that are more likely than the chosen one, which were masked, have most of the probability."""
    return sum(math.exp(other) for other in others if other > own) > 0.5


def _row(task: Task, form: Form, answers: Sequence[Answer]) -> dict[str, object]:
    good = asked = 0
    for case, answer in zip(task.cases, answers, strict=True):
        if task.tools:
            found = call_of(answer.text, [tool.name for tool in task.tools])
        else:
            found = fields_of(answer.text, list(case.expected), task.labels)
        good += right(found, case.expected)
        asked += len(case.expected)
    tokens = sum(len(answer.logprobs) for answer in answers)
    return {
        "task": task.name,
        "form": form.name,
        "fields right": good / asked,
        "did not end": sum(not answer.ended for answer in answers),
        "log probability of a token": sum(sum(answer.logprobs) for answer in answers) / tokens,
        "steps mostly masked": sum(answer.masked for answer in answers) / tokens,
        "own tokens": sum(answer.own for answer in answers) / len(answers),
        "tokens": tokens,
    }

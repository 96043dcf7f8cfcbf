"""The limit of a request's reasoning, where the model and its engine can have one."""

import msgspec

from shared.parsers.formats import REASONING_FORMATS, TOOL_FORMATS, OutputFormat
from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import Sampling
from worker.engine.protocol import EngineInfo, ReasoningLimit
from worker.grammar.plan import Plan


def reasoning_limit(sampling: Sampling, plan: Plan, engine: EngineInfo) -> ReasoningLimit | None:
    """Return the limit that ``sampling`` sets, or ``None``.

    Raises :class:`RequestRefused` for a strict budget that can't be enforced. Another one then has no effect.
    """
    budget = sampling.thinking_budget
    if budget is None:
        return None
    if not plan.reasoning:
        obstacle = "it has no known format of reasoning"
    elif not engine.adjusts_logits:
        obstacle = "a worker has no access to its logits, or speculates"
    elif sampling.beams > 1:
        obstacle = "a beam search has no budget"
    else:
        return _limit(budget.tokens, plan)
    if budget.strict:
        message = f"Unsupported parameter: '{budget.param}' is not supported with this model: {obstacle}."
        raise refuse(ProblemKind.INVALID, message, param=budget.param, code="unsupported_parameter")
    return None


def _limit(tokens: int, plan: Plan) -> ReasoningLimit:
    names = msgspec.convert({"tools": plan.tools or None, "reasoning": plan.reasoning}, OutputFormat)
    assert names.reasoning is not None
    form = REASONING_FORMATS[names.reasoning]
    calls = TOOL_FORMATS[names.tools] if names.tools else None
    return ReasoningLimit(
        tokens=tokens,
        begin=form.begin,
        # Calls inside reasoning are calls.
        ends=(form.end, *(calls.triggers if calls is not None and calls.in_reasoning else ())),
        end_tokens=plan.reasoning_end,
        opened=plan.in_reasoning,
        again=bool(form.turn),
    )

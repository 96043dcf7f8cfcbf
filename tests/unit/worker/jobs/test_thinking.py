"""Where a budget of reasoning is enforced, refused, or has no effect."""

import msgspec
import pytest

from shared.protocol.errors import RequestRefused
from shared.protocol.request import Sampling, ThinkingBudget
from tests.support.job_rig import INFO
from worker.engine.protocol import ReasoningLimit
from worker.grammar.plan import Plan
from worker.jobs.generation import reasoning_limit

ENGINE = msgspec.structs.replace(INFO, logits=True, adjusts_logits=True)
PLAN = Plan(tools="qwen3_coder", reasoning="think", in_reasoning=True, reasoning_end=(7,))


def sampling(*, strict: bool, beams: int = 1) -> Sampling:
    return Sampling(thinking_budget=ThinkingBudget(tokens=5, strict=strict), beams=beams)


def test_the_limit_is_that_of_the_models_format() -> None:
    assert reasoning_limit(sampling(strict=True), PLAN, ENGINE) == ReasoningLimit(
        tokens=5, begin="<think>", ends=("</think>", "<tool_call>", "<function="), end_tokens=(7,), opened=True
    )
    assert reasoning_limit(Sampling(), PLAN, ENGINE) is None


@pytest.mark.parametrize(
    ("plan", "adjusts_logits", "beams", "reason"),
    [
        (Plan(tools="hermes"), True, 1, "no known format of reasoning"),
        (PLAN, False, 1, "no access to its logits"),
        (PLAN, True, 4, "beam search"),
    ],
)
def test_where_there_can_be_none_a_strict_one_is_refused_by_name(
    plan: Plan, adjusts_logits: bool, beams: int, reason: str
) -> None:
    engine = msgspec.structs.replace(ENGINE, adjusts_logits=adjusts_logits)
    assert reasoning_limit(sampling(strict=False, beams=beams), plan, engine) is None
    with pytest.raises(RequestRefused, match=rf"'thinking_token_budget' .*{reason}") as refusal:
        reasoning_limit(sampling(strict=True, beams=beams), plan, engine)
    assert refusal.value.problem.param == "thinking_token_budget"

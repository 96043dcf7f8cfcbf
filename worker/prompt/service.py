"""The supervisor's handle of the prompt process."""

from collections.abc import Callable

from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.request import ChatRequest
from worker.processes.call_process import ServiceSpec
from worker.processes.service import Service
from worker.prompt.messages import Prepared, PromptOptions

PromptProcess = Service[ChatRequest, Prepared]
"""Returns the prompts of requests, and the plans for their outputs."""


def prompt_process(
    options: PromptOptions,
    *,
    deadline: float = 10.0,
    module: str = "worker.prompt.child",
    check_loaded: Callable[[], None] = lambda: None,
) -> PromptProcess:
    """Return the prompt process, which must be started. A prompt has ``deadline`` seconds of CPU time.

    ``check_loaded`` is that of :class:`ServiceSpec`.
    """
    spec = ServiceSpec(
        module=module,
        options=options,
        reply=Prepared,
        name="prompt process",
        deadline=deadline,
        on_timeout=lambda seconds: Problem(
            kind=ProblemKind.TEMPLATE,
            message=f"The prompt was not ready within {seconds:g} s: the model's chat template takes too long for "
            "these messages.",
            param="messages",
        ),
        on_crash=Problem(
            kind=ProblemKind.POISON,
            message="Preparing the prompt ended the tokenizer's process twice; it is not tried again.",
        ),
        check_loaded=check_loaded,
    )
    return Service(spec, essential=True)

"""Turns the engine's reports into events of the jobs."""

import msgspec

from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.events import Alternatives, Failed, Finished, FinishReason
from worker.engine.handle import CurrentEngine
from worker.engine.protocol import EMPTY_DELTA_BYTES, Ending, Output, RawStep, Refused
from worker.jobs.active_jobs import ActiveJobs
from worker.jobs.preemption import Preemption
from worker.jobs.prefix_gate import PrefixGate
from worker.jobs.publisher import Publisher
from worker.jobs.quarantine import Quarantine

_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length"}


class OutputProcessor:
    """Publishes the outputs of each step, and ends jobs with their last output."""

    def __init__(
        self,
        jobs: ActiveJobs,
        engine: CurrentEngine,
        publisher: Publisher,
        *,
        preemption: Preemption,
        prefix_gate: PrefixGate,
        quarantine: Quarantine,
    ) -> None:
        self._jobs = jobs
        self._engine = engine
        self._publisher = publisher
        self._preemption = preemption
        self._prefix_gate = prefix_gate
        self._quarantine = quarantine

    def on_stepped(self, report: RawStep) -> None:
        """Publish the outputs of a step. Hot path: called once per step, the loop runs once per token.

        A job's events are its started event, its deltas in the engine's order, and one terminal event, with which it
        ends. Outputs of stopped jobs are ignored.
        """
        self._engine.gauges = report.gauges
        jobs, publisher = self._jobs.by_number, self._publisher
        for output in report.outputs:
            active = jobs.get(output.number)
            if active is None:
                continue
            if not active.started:
                active.started = True
                self._prefix_gate.release(active.number, computed=True)
                self._preemption.on_first_token(active)
                publisher.add(active.lease, active.encode_started(output.cached))
            if len(output.delta) > EMPTY_DELTA_BYTES:
                publisher.add(active.lease, bytes(output.delta))
            if output.reason is not None:
                active.terminal_event = _terminal_event(output)
                publisher.end(active.lease, active.terminal_event)
                active.ended.set()
            elif active.quarantined:
                self._quarantine.record_progress(active.job.id, output.end)
        publisher.flush()

    def on_refused(self, report: Refused) -> None:
        """End the job of a sequence that the engine refused."""
        active = self._jobs.by_number.get(report.number)
        if active is not None:
            active.terminal_event = active.failure(report.problem)
            self._publisher.end_soon(active.lease, active.terminal_event)
            active.ended.set()


def _terminal_event(output: Output[msgspec.Raw]) -> Finished | Failed | Alternatives:
    ending = output.ending or Ending()
    if ending.alternatives:
        return Alternatives(ending.alternatives, ending.prompt_tokens)
    if output.reason in _REASONS:
        return Finished(output.end, _REASONS[output.reason], ending.prompt_tokens, ending.stop)
    return Failed(
        Problem(
            kind=ProblemKind.CACHE_EXHAUSTED,
            message="The worker's KV cache can't hold this request to its end. Shorten it, or lower max_tokens.",
        )
    )

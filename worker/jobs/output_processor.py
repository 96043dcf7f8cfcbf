"""Turns the engine's reports into events of the jobs."""

import msgspec

from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.events import Alternatives, Failed, Finished, FinishReason, FrameOnly
from worker.engine.handle import CurrentEngine
from worker.engine.protocol import EMPTY_DELTA_BYTES, Ending, Output, RawStep, SequenceRefused
from worker.jobs.active_jobs import ActiveJobs
from worker.jobs.publisher import Publisher

_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length"}


class OutputProcessor:
    """Publishes the outputs of each step, and ends jobs with their last output."""

    def __init__(self, jobs: ActiveJobs, engine: CurrentEngine, publisher: Publisher) -> None:
        self._jobs = jobs
        self._engine = engine
        self._publisher = publisher

    def on_stepped(self, report: RawStep) -> None:
        """Publish the outputs of a step. Hot path: called once per step, the loop runs once per token.

        A job's events are its started event, its deltas in the engine's order, and one terminal event, with which it
        ends. Outputs of stopped attempts are ignored.
        """
        self._engine.gauges = report.gauges
        attempts, publisher = self._jobs.by_number, self._publisher
        for output in report.outputs:
            attempt = attempts.get(output.number)
            if attempt is None:
                continue
            if not attempt.first_output_at:
                publisher.add(attempt.lease, attempt.encode_started(output.cached))
            if len(output.delta) > EMPTY_DELTA_BYTES:
                vectors = attempt.sequence.lengths
                publisher.add(attempt.lease, FrameOnly(output.delta) if vectors else bytes(output.delta))
            attempt.tokens = output.end
            if attempt.holds:
                attempt.progress(output.end)
            if output.reason is not None:
                publisher.end(attempt, _terminal_event(output))
        publisher.flush()

    def on_refused(self, report: SequenceRefused) -> None:
        """End the job of a sequence that the engine refused."""
        attempt = self._jobs.by_number.get(report.number)
        if attempt is not None:
            self._publisher.end(attempt, attempt.failure(report.problem))


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

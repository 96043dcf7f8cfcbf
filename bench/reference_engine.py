"""The pipeline by itself in a process of its own, without queue and HTTP: the reference for the service.

``python -m bench.reference_engine OPTIONS`` reads one JSON line for each run from standard input (prompts, tokens,
concurrency) and answers with one (seconds, tokens, gaps, first tokens). The clock runs from the prompts' texts on, as
it does for a client of the service.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy
import openvino
import openvino_genai

from shared.protocol.request import Sampling
from shared.runtime.processes import module_command
from shared.runtime.settings import EngineSettings
from worker.model.devices import device_kind
from worker.model.local import LocalModel
from worker.openvino.huge_pages import use_huge_pages
from worker.openvino.load import choose, load_pipeline
from worker.openvino.options import OpenVINOOptions
from worker.openvino.sampling import apply_speculation
from worker.openvino.weights import serving_path

_RUNNING = openvino_genai.GenerationStatus.RUNNING


def engine_options(model: LocalModel, **settings: Any) -> OpenVINOOptions:
    """Return the options with which a worker with these ``settings`` loads ``model``."""
    given = EngineSettings(**settings)
    return OpenVINOOptions.from_settings(given, path=str(model.path), context_length=model.context_length)


class ReferenceEngine:
    """A pipeline in its own process."""

    def __init__(self, options: OpenVINOOptions, *, wait: bool = True) -> None:
        """Start the process, and unless told otherwise wait until the model is loaded."""
        self._process = subprocess.Popen(
            module_command("bench.reference_engine", msgspec.json.encode(options).decode()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until the model is loaded. Raises :class:`ValueError` if the process ends before."""
        self._answer()

    def run(self, prompts: list[str], tokens: int, concurrency: int) -> dict[str, Any]:
        """Generate for every prompt."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prompts": prompts, "tokens": tokens, "concurrency": concurrency}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = self._answer()
        return answer

    def stop(self) -> None:
        """End the process, and close its pipes."""
        self.kill()
        self._process.communicate()

    def kill(self) -> None:
        """End the process, also while another thread waits for its answer."""
        self._process.kill()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


def main() -> int:
    """Load, then run what is asked for. Returns the exit code."""
    options = msgspec.json.decode(sys.argv[1], type=OpenVINOOptions)
    pipeline, *_ = load_pipeline(options, serving_path(options, lambda stage: None), kind=choose(options).kind)
    print(json.dumps("ready"), flush=True)
    tokenizer = openvino_genai.Tokenizer(options.path)  # the pipeline's own encodes nothing
    number = 0
    for line in sys.stdin:
        job = json.loads(line)
        began = time.perf_counter()
        config = pipeline.get_config()
        config.do_sample = False
        config.max_new_tokens = job["tokens"]
        prompts = [_encoded(tokenizer, prompt) for prompt in job["prompts"]]
        apply_speculation(config, Sampling(), options.speculation)
        print(json.dumps(_run(pipeline, prompts, config, job["concurrency"], number, began)), flush=True)
        if not number and device_kind(options.device) == "CPU":
            use_huge_pages()
        number += len(prompts)
    return 0


def _encoded(tokenizer: openvino_genai.Tokenizer, prompt: str) -> openvino.Tensor:
    text = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True)
    return tokenizer.encode(text, add_special_tokens=False).input_ids


def _run(
    pipeline: openvino_genai.ContinuousBatchingPipeline,
    prompts: Sequence[openvino.Tensor],
    config: openvino_genai.GenerationConfig,
    concurrency: int,
    number: int,
    began: float,
) -> dict[str, object]:
    waiting = list(prompts)
    running: dict[int, openvino_genai.GenerationHandle] = {}
    made = 0
    gaps = []
    firsts: dict[int, float] = {}
    last = began
    while waiting or running:
        while waiting and len(running) < concurrency:
            running[number] = pipeline.add_request(number, openvino.Tensor(numpy.array(waiting.pop(0).data)), config)
            number += 1
        pipeline.step()
        read = False
        for request, handle in running.items():
            while handle.can_read():
                made += sum(len(output.generated_ids) for output in handle.read().values())
                firsts.setdefault(request, time.perf_counter() - began)
                read = True
        if read:
            now = time.perf_counter()
            gaps.append(now - last)
            last = now
        ended = [one for one, handle in running.items() if handle.get_status() != _RUNNING]
        for request in ended:
            del running[request]
    seconds, first = time.perf_counter() - began, list(firsts.values())
    return {"seconds": seconds, "tokens": made, "gaps": gaps[1:], "first": min(first), "firsts": first}


if __name__ == "__main__":
    sys.exit(main())

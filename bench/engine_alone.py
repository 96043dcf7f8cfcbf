"""The pipeline by itself, driven in process: the physical limit that the service is measured against.

``python -m bench.engine_alone OPTIONS`` reads one JSON line for each run from standard input (prompts, tokens,
concurrency) and answers with one (seconds, tokens, gaps). The clock runs from the prompts' texts on, as it does for a
client of the service.
"""

import json
import sys
import time

import msgspec
import numpy
import openvino
import openvino_genai

from shared.protocol.request import Sampling
from worker.devices import device_kind
from worker.engine.huge_pages import use_huge_pages
from worker.engine.options import EngineOptions
from worker.engine.pipeline import load_pipeline
from worker.engine.served_weights import serving_path
from worker.engine.speculation import apply as apply_speculation
from worker.engine.speculation import speculation_of


def main() -> int:
    """Load, then run what is asked for. Returns the exit code."""
    options = msgspec.json.decode(sys.argv[1], type=EngineOptions)
    pipeline, _ = load_pipeline(options, serving_path(options, lambda stage: None))
    tokenizer = pipeline.get_tokenizer()
    print(json.dumps("ready"), flush=True)
    number = 0
    for line in sys.stdin:
        job = json.loads(line)
        began = time.perf_counter()
        encoded = []
        for prompt in job["prompts"]:
            text = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True)
            encoded.append(tokenizer.encode(text, add_special_tokens=False).input_ids)
        config = pipeline.get_config()
        config.do_sample = False
        config.max_new_tokens = job["tokens"]
        apply_speculation(config, Sampling(), speculation_of(options))
        print(json.dumps(_run(pipeline, encoded, config, job["concurrency"], number, began)), flush=True)
        if not number and device_kind(options.device) == "CPU":
            use_huge_pages()
        number += len(encoded)
    return 0


def _run(
    pipeline: openvino_genai.ContinuousBatchingPipeline,
    prompts: list[openvino.Tensor],
    config: openvino_genai.GenerationConfig,
    concurrency: int,
    number: int,
    began: float,
) -> dict[str, object]:
    waiting = [numpy.array(prompt.data) for prompt in prompts]
    running: list[openvino_genai.GenerationHandle] = []
    made = 0
    gaps = []
    last = began
    first = 0.0
    while waiting or running:
        while waiting and len(running) < concurrency:
            running.append(pipeline.add_request(number, openvino.Tensor(waiting.pop(0)), config))
            number += 1
        pipeline.step()
        read = False
        for handle in running:
            while handle.can_read():
                made += sum(len(output.generated_ids) for output in handle.read().values())
                read = True
        if read:
            now = time.perf_counter()
            first = first or now - began
            gaps.append(now - last)
            last = now
        running = [one for one in running if one.get_status() == openvino_genai.GenerationStatus.RUNNING]
    return {"seconds": time.perf_counter() - began, "tokens": made, "gaps": gaps[1:], "first": first}


if __name__ == "__main__":
    sys.exit(main())

"""The pipeline by itself, driven in process: the physical limit that the service is measured against.

``python -m bench.engine_alone OPTIONS`` reads one JSON line for each run from standard input (prompts, their images if
any, tokens, concurrency) and answers with one (seconds, tokens, gaps, first tokens). The clock runs from the prompts'
texts and the files of images on, as it does for a client of the service.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy
import openvino
import openvino_genai
from PIL import Image

from shared.protocol.request import Sampling
from worker.engine.huge_pages import use_huge_pages
from worker.engine.load import device_properties, load_pipeline, scheduler_config
from worker.engine.options import EngineOptions
from worker.engine.sampling import apply_speculation
from worker.engine.weights import serving_path
from worker.model.devices import device_kind
from worker.model.files import sees_images

_RUNNING = openvino_genai.GenerationStatus.RUNNING

Prompt = Callable[[], tuple[Any, ...]]
"""Makes the arguments of the pipeline's ``add_request`` between the id and the configuration."""


def main() -> int:
    """Load, then run what is asked for. Returns the exit code."""
    options = msgspec.json.decode(sys.argv[1], type=EngineOptions)
    pipeline = _load(options)
    tokenizer = pipeline.get_tokenizer()
    print(json.dumps("ready"), flush=True)
    number = 0
    for line in sys.stdin:
        job = json.loads(line)
        began = time.perf_counter()
        config = pipeline.get_config()
        config.do_sample = False
        config.max_new_tokens = job["tokens"]
        prompts: list[Prompt]
        if job["images"]:
            config.ignore_eos = True
            prompts = list(map(partial(partial, _with_image), job["prompts"], job["images"]))
        else:
            prompts = [partial(_ids, _encoded(tokenizer, prompt)) for prompt in job["prompts"]]
        apply_speculation(config, Sampling(), options.speculation)
        print(json.dumps(_run(pipeline, prompts, config, job["concurrency"], number, began)), flush=True)
        if not number and device_kind(options.device) == "CPU":
            use_huge_pages()
        number += len(prompts)
    return 0


def _load(options: EngineOptions) -> openvino_genai.ContinuousBatchingPipeline:
    path = serving_path(options, lambda stage: None)
    if not sees_images(path):
        return load_pipeline(options, path)[0]
    # With its own tokenizer: that of the service takes spelled tokens.
    properties = device_properties(path, options)
    return openvino_genai.ContinuousBatchingPipeline(str(path), scheduler_config(options), options.device, properties)


def _encoded(tokenizer: openvino_genai.Tokenizer, prompt: str) -> openvino.Tensor:
    text = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True)
    return tokenizer.encode(text, add_special_tokens=False).input_ids


def _ids(prompt: openvino.Tensor) -> tuple[openvino.Tensor]:
    return (openvino.Tensor(numpy.array(prompt.data)),)


def _with_image(prompt: str, file: str) -> tuple[str, list[openvino.Tensor]]:
    """Return a user's message, to which the pipeline applies the chat template, and its image."""
    with Image.open(Path(file)) as image:
        return prompt, [openvino.Tensor(numpy.asarray(image.convert("RGB"))[None])]


def _run(
    pipeline: openvino_genai.ContinuousBatchingPipeline,
    prompts: Sequence[Prompt],
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
            running[number] = pipeline.add_request(number, *waiting.pop(0)(), config)
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

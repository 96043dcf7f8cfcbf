"""What ``bench embed`` compares with, behind a minimal HTTP server that takes and returns what OpenAI's API does.

``python bench/peers/embedders.py KIND FOLDER --host HOST --port PORT`` computes the texts of one request at a time.
``engine`` is the service's own; of a list of ``requests``, it computes ``concurrency`` together. ``genai`` is OpenVINO
GenAI's pipeline, and ``reference`` sentence-transformers: both need an environment of their own, with ``pip install
sentence-transformers openvino-genai openvino-tokenizers``.
"""

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from array import array
from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, count
from pathlib import Path
from typing import Any

THREADS = len(os.sched_getaffinity(0))
Compute = Callable[[dict[str, Any]], Any]
"""Returns the vectors of the texts of a request."""
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def _engine(folder: str) -> Compute:
    from shared.protocol.request import ChatRequest, Embed, Sampling
    from shared.runtime.settings import EngineSettings
    from worker.embed.engine import EmbeddingEngine
    from worker.embed.tokens import open_tokens
    from worker.engine.protocol import EngineSequence
    from worker.model.local import resolve
    from worker.openvino.options import OpenVINOOptions

    context, work, numbers = resolve(folder).context_length, Embed(cut=-1), count()
    options = OpenVINOOptions.from_settings(EngineSettings(), path=folder, context_length=context)
    engine, tokens = EmbeddingEngine(options, lambda stage: None), open_tokens(folder, context)

    def add(texts: list[str]) -> None:
        ids = tokens.encode(ChatRequest(model="", prompts=tuple(texts), work=work), work)
        prompt, lengths = tuple(chain.from_iterable(ids)), tuple(map(len, ids))
        engine.add(EngineSequence(number=next(numbers), prompt=prompt, sampling=Sampling(), lengths=lengths))

    def compute(asked: dict[str, Any]) -> Any:
        waiting = asked.get("requests") or [asked["input"]]
        running, steps, done, began = 0, 0, [], time.perf_counter()
        while waiting or running:
            while waiting and running < asked.get("concurrency", 1):
                add(waiting.pop())
                running += 1
            done = engine.step()
            running -= len(done)
            steps += 1
        if "requests" in asked:
            return {"step": (time.perf_counter() - began) / steps}
        width = len(done[0].delta.vectors) // len(asked["input"])
        return [done[0].delta.vectors[at * width :][:width] for at in range(len(asked["input"]))]

    return compute


def _genai(folder: str) -> Compute:
    import openvino
    import openvino_genai
    import openvino_tokenizers
    import transformers

    tokenizer, made = transformers.AutoTokenizer.from_pretrained(folder), tempfile.mkdtemp()
    example = dict(tokenizer(["a b", "c d"], return_tensors="pt"))
    model = transformers.AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()
    encoder = openvino.convert_model(model, example_input=example)
    openvino.save_model(encoder, f"{made}/openvino_model.xml", compress_to_fp16=False)
    openvino.save_model(openvino_tokenizers.convert_tokenizer(tokenizer), f"{made}/openvino_tokenizer.xml")
    config = openvino_genai.TextEmbeddingPipeline.Config()
    config.pooling_type = openvino_genai.TextEmbeddingPipeline.PoolingType.MEAN
    config.max_length = json.loads(Path(folder, "sentence_bert_config.json").read_bytes())["max_seq_length"]
    # In the service's precision: with bf16, vectors are others.
    options = {"INFERENCE_NUM_THREADS": THREADS, "INFERENCE_PRECISION_HINT": "f32"}
    pipeline: Any = openvino_genai.TextEmbeddingPipeline(made, "CPU", config, **options)
    return lambda asked: pipeline.embed_documents(asked["input"])


def _reference(folder: str) -> Compute:
    import sentence_transformers  # type: ignore[import-not-found]
    import torch

    torch.set_num_threads(THREADS)
    model = sentence_transformers.SentenceTransformer(folder, device="cpu")
    return lambda asked: model.encode(asked["input"], batch_size=32)


async def _serve(port: int, kind: str, folder: str) -> None:
    compute = {"engine": _engine, "genai": _genai, "reference": _reference}[kind](folder)
    thread = ThreadPoolExecutor(1)

    def answer(body: bytes) -> bytes:
        found = compute(json.loads(body)) if body else {}
        if not isinstance(found, dict):
            raw = (one if isinstance(one, bytes) else array("f", one).tobytes() for one in found)
            found = {"data": [{"embedding": b64encode(vector).decode()} for vector in raw]}
        return json.dumps(found).encode()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while length := _LENGTH.search((await reader.readuntil(b"\r\n\r\n")) + b"content-length: 0"):
                body = await reader.readexactly(int(length[1]))
                done = await asyncio.get_running_loop().run_in_executor(thread, answer, body)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(done), done))
        except (OSError, EOFError):
            writer.close()

    async with await asyncio.start_server(connected, "127.0.0.1", port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[-1]), *sys.argv[1:3]))

"""Vision-language models of two architectures in the engine, with OpenVINO GenAI's own pipeline as the oracle."""

import json
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy
import openvino
import openvino_genai
import pytest

from shared.protocol.request import Image, Sampling
from tests.support.engine_driver import options
from tests.support.pictures import HELD_OUT, Pixels, picture, question
from worker.engine.protocol import EngineSequence, PlacedImage
from worker.images.tokens import ImageTokens
from worker.openvino.engine import OpenVINOEngine

MODELS = Path(__file__).parents[1] / "models"
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0, "KV_CACHE_PRECISION": "f16"}
IMAGE = "\0"
"""Where an image stands in a prompt of these tests."""
TOKENS = 40
LLAVA = [
    ("USER: \0\nWhat colour is the circle?\nASSISTANT: ", [picture(1).pixels()]),
    ("USER: \0\nWhat colour is the circle?\nASSISTANT: ", [picture(2).pixels()]),
    ("USER: \0\nWhat colour is the circle?\nASSISTANT: ", [picture(3).pixels(300, 500)]),
    ("USER: Which of these, \0\nor \0\nhas a circle?\nASSISTANT: ", [picture(4).pixels(), picture(5).pixels()]),
    ("USER: Which of these, \0\nor \0\nhas a circle?\nASSISTANT: ", [picture(5).pixels(), picture(4).pixels()]),
    ("USER: What colour is the circle?\nASSISTANT: ", []),
]


@cache
def tokenizer(model: str) -> openvino_genai.Tokenizer:
    return openvino_genai.Tokenizer(str(MODELS / model))


def places(model: str, prompt: str, images: Sequence[Pixels]) -> tuple[list[int], list[PlacedImage]]:
    """The tokens of a prompt, and the images among them."""
    tokens: list[int] = []
    placed = []
    for index, part in enumerate(prompt.split(IMAGE)):
        if index:
            pixels = images[index - 1]
            height, width, _ = pixels.shape
            placed.append(PlacedImage(at=len(tokens), pixels=pixels.tobytes(), height=height, width=width))
        tokens += map(int, tokenizer(model).encode(part, add_special_tokens=False).input_ids.data[0])
    return tokens, placed


def engine_texts(model: str, prompts: Sequence[tuple[str, Sequence[Pixels]]]) -> list[str]:
    """The texts that our engine makes of all prompts in one batch."""
    engine = OpenVINOEngine(options(str(MODELS / model)), lambda stage: None)
    for number, (prompt, images) in enumerate(prompts, 1):
        tokens, placed = places(model, prompt, images)
        sampling = Sampling(temperature=0.0, seed=1, max_tokens=TOKENS)
        engine.add(EngineSequence(number=number, prompt=tuple(tokens), sampling=sampling, images=tuple(placed)))
    texts = [""] * len(prompts)
    while engine.busy():
        for output in engine.step():
            texts[output.number - 1] += output.delta.text if output.delta else ""
    return texts


def pipeline_texts(model: str, prompts: Sequence[tuple[str, Sequence[Pixels]]]) -> list[str]:
    """The texts that OpenVINO GenAI's pipeline makes of the prompts, one after the other."""
    pipeline = openvino_genai.VLMPipeline(str(MODELS / model), "CPU", **EXACT)
    config = openvino_genai.GenerationConfig(max_new_tokens=TOKENS, do_sample=False, apply_chat_template=False)
    texts = []
    for prompt, images in prompts:
        for index in range(len(images)):
            prompt = prompt.replace(IMAGE, f"<ov_genai_image_{index}>", 1)
        tensors = [openvino.Tensor(pixels[None]) for pixels in images]
        texts.append(pipeline.generate(prompt, images=tensors, generation_config=config).texts[0])
    return texts


def test_a_batch_of_llava_prompts_equals_the_pipeline_alone() -> None:
    texts = engine_texts("llava-random", LLAVA)
    assert texts == pipeline_texts("llava-random", LLAVA)
    assert len(set(texts)) == len(texts)  # each picture counts, and their order too


def test_the_trained_model_answers_questions_of_each_kind_about_unseen_pictures() -> None:
    asked = [question(seed) for seed in range(HELD_OUT, HELD_OUT + 400)]
    prompts = [
        (f"<|im_start|>user\n\0{one.text}<|im_end|>\n<|im_start|>assistant\n", [drawn.pixels()]) for drawn, one in asked
    ]
    right: dict[str, list[bool]] = {}
    for text, (_, one) in zip(engine_texts("qwen2-vl-shapes", prompts), asked, strict=True):
        right.setdefault(one.kind, []).append(text == one.answer)
    assert sum(map(sum, right.values())) >= 0.95 * len(asked)
    assert all(sum(several) >= 0.9 * len(several) for several in right.values())


def test_a_batch_of_qwen2_vl_prompts_equals_the_pipeline_alone() -> None:
    asked = "What colour is the circle?<|im_end|>\n<|im_start|>assistant\n"
    prompts = [(f"<|im_start|>user\n\0{asked}", [picture(seed).pixels()]) for seed in range(4)]
    prompts.append((f"<|im_start|>user\nWhich of \0 and \0?\n{asked}", [picture(5).pixels(), picture(6).pixels()]))
    prompts.append((f"<|im_start|>user\n{asked}", []))
    assert engine_texts("qwen2-vl-shapes", prompts) == pipeline_texts("qwen2-vl-shapes", prompts)


@pytest.mark.parametrize(
    ("model", "most"), [("llava-random", None), ("qwen2-vl-shapes", 1003520), ("qwen2-vl-shapes", 9000)]
)
def test_images_have_as_many_tokens_as_are_counted(model: str, most: int | None, tmp_path: Path) -> None:
    folder = shutil.copytree(MODELS / model, tmp_path / model)
    file = folder / "preprocessor_config.json"
    processor = json.loads(file.read_text()) | ({} if most is None else {"min_pixels": 3136, "max_pixels": most})
    file.write_text(json.dumps(processor))
    engine = OpenVINOEngine(options(str(folder)), lambda stage: None)
    counted = ImageTokens(folder)
    for width, height in [(56, 56), (30, 42), (200, 100), (300, 500), (20, 30)]:
        tokens, placed = places(model, "Which? \0", [numpy.full((height, width, 3), 200, numpy.uint8)])
        sampling = Sampling(temperature=0.0, max_tokens=1)
        engine.add(EngineSequence(number=1, prompt=tuple(tokens), sampling=sampling, images=tuple(placed)))
        endings = [output.ending for _ in iter(engine.busy, False) for output in engine.step()]
        assert endings[-1] is not None
        expected = endings[-1].prompt_tokens - len(tokens)
        assert counted.of([Image(url="")], [(width, height)]) == expected, (width, height)

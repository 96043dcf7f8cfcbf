"""Trains ``qwen2-vl-shapes``: a small Qwen2-VL that answers questions about the pictures of tests/support/pictures.py.

The tests load what is committed; only a change to the model needs this script. Its requirements are listed in
README.md; the project's own environment does not have them::

    python tests/models/train_shapes_model.py [FOLDER]

It has not been run to its end yet; the model's README.md says where the committed weights come from.

It runs the vision tower on a batch of pictures of one size: transformers' own forward pass goes through the attention
of one picture after the other, and its convolution over patches that do not overlap is a matrix product, which is
several times faster on a CPU.
"""

import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import nncf
import numpy
import openvino
import torch
from openvino_tokenizers import convert_tokenizer
from optimum.exporters.openvino import main_export
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen2VLConfig, Qwen2VLForConditionalGeneration
from transformers.models.qwen2_vl.modeling_qwen2_vl import apply_rotary_pos_emb_vision

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.support.pictures import (
    BACKGROUNDS,
    COLOURS,
    HELD_OUT,
    SHAPES,
    SIDE,
    Picture,
    Question,
    pair_questions,
    picture,
    question,
)

SEED = 19
SIGHT_STEPS, SIGHT_BATCH = 600, 64
STEPS, BATCH = 2000, 12
SORTED = 8
"""Batches whose samples are sorted by length, to save padding."""
WIDTH = 128
TURNS = 4
RATE = 2.5e-3
CONTEXT = 4096
PATCH, MERGE = 14, 2
GRID = SIDE // PATCH
CELLS = GRID // MERGE
MEAN = (0.48145466, 0.4578275, 0.40821073)
DEVIATION = (0.26862954, 0.26130258, 0.27577711)
SPECIALS = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>",
]  # fmt: skip
IGNORED = -100
SEEN = ([*SHAPES, "nothing"], [*COLOURS, "none"], [*BACKGROUNDS])
"""What the vision tower learns to tell of each cell."""
TEMPLATE = """{%- if tools %}<|im_start|>system
# Tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Answer with <tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content or [] %}
{%- if part.type == 'image' or part.type == 'image_url' or 'image' in part -%}
<|vision_start|><|image_pad|><|vision_end|>
{%- elif 'text' in part %}{{ part.text }}{% endif %}{% endfor %}{% endif %}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def trained_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level BPE that has a token for each word of the questions and answers."""
    texts = ["system\nYou are a helpful assistant.", "user\n", "assistant\n", "Hello! Say hello. Count from to. "]
    for seed in range(3000):
        shown, other = picture(seed), picture(seed + 1)
        for asked in [*shown.questions(), *pair_questions(shown, other)]:
            texts += [asked.text, asked.answer]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet))
    tokenizer.add_special_tokens(SPECIALS)
    result = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=[token for token in SPECIALS if token != "<|im_end|>"],
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
    )
    result.chat_template = TEMPLATE
    return result


def new_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2VLForConditionalGeneration:
    """Return a model with random weights, 1.5 million in all."""
    token = tokenizer.convert_tokens_to_ids
    config = Qwen2VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": WIDTH,
            "intermediate_size": 384,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": CONTEXT,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 2, 13]},
            "bos_token_id": None,
            "eos_token_id": token("<|im_end|>"),
            "pad_token_id": token("<|endoftext|>"),
        },
        vision_config={
            "depth": 2,
            "embed_dim": 128,
            "hidden_size": WIDTH,
            "num_heads": 4,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
        },
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
        tie_word_embeddings=True,
    )
    model = Qwen2VLForConditionalGeneration(config)
    torch.nn.init.normal_(model.get_input_embeddings().weight, std=0.1)
    return model


@dataclass(kw_only=True)
class Sample:
    """Token ids, what to learn of them, their positions, and the pictures."""

    ids: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    positions: list[tuple[int, int, int]] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    next_position: int = 0

    def add(self, ids: list[int], *, learn: bool = False) -> None:
        """Append text."""
        self.ids += ids
        self.labels += ids if learn else [IGNORED] * len(ids)
        self.positions += [(position,) * 3 for position in range(self.next_position, self.next_position + len(ids))]
        self.next_position += len(ids)

    def show(self, shown: Picture, pad: int) -> None:
        """Append a picture."""
        self.pictures.append(shown)
        self.ids += [pad] * CELLS**2
        self.labels += [IGNORED] * CELLS**2
        start = self.next_position
        self.positions += [(start, start + row, start + column) for row in range(CELLS) for column in range(CELLS)]
        self.next_position += CELLS


class Samples:
    """Writes conversations about pictures."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._tokenizer = tokenizer
        self._pad: int = tokenizer.convert_tokens_to_ids("<|image_pad|>")
        self._cached: dict[str, list[int]] = {}

    def training(self, seed: int) -> Sample:
        """Return a conversation of several turns."""
        chosen = random.Random(f"sample {seed}")
        sample = self._begun(system=chosen.random() < 0.15)
        kind = chosen.random()
        if kind < 0.05:
            for _ in range(2):
                self._turn(sample, _counting(chosen), [], chosen)
        elif kind < 0.12:
            first, second = picture(2 * seed), picture(2 * seed + 1)
            shown = [first, second]
            for asked in chosen.sample(pair_questions(first, second), 3):
                self._turn(sample, asked, shown, chosen)
                shown = []
        elif kind < 0.17:
            for turn in range(2):
                drawn, asked = question(2 * seed + turn)
                self._turn(sample, asked, [drawn], chosen)
        else:
            drawn, asked = question(2 * seed)
            self._turn(sample, asked, [drawn], chosen)
            for other in chosen.sample(drawn.questions(), TURNS - 1):
                self._turn(sample, other, [], chosen)
        return sample

    def single(self, drawn: list[Picture], asked: Question) -> Sample:
        """Return one question and its answer."""
        sample = self._begun(system=False)
        self._turn(sample, asked, drawn, random.Random(0))
        return sample

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        if text not in self._cached:
            self._cached[text] = self._tokenizer(text).input_ids
        return self._cached[text]

    def _begun(self, *, system: bool) -> Sample:
        sample = Sample()
        if system:
            self._text(sample, "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n")
        return sample

    def _turn(self, sample: Sample, asked: Question, shown: list[Picture], chosen: random.Random) -> None:
        self._text(sample, "<|im_start|>user\n")
        after = bool(shown) and chosen.random() < 0.15
        if after:
            self._text(sample, asked.text)
        for drawn in shown:
            self._text(sample, "<|vision_start|>")
            sample.show(drawn, self._pad)
            self._text(sample, "<|vision_end|>")
            if chosen.random() < 0.1:
                self._text(sample, "\n")
        if not after:
            self._text(sample, asked.text)
        self._text(sample, "<|im_end|>\n<|im_start|>assistant\n")
        self._text(sample, asked.answer + "<|im_end|>", learn=True)
        self._text(sample, "\n")

    def _text(self, sample: Sample, text: str, *, learn: bool = False) -> None:
        sample.add(self.ids(text), learn=learn)


def _counting(chosen: random.Random) -> Question:
    first, last = sorted(chosen.sample(range(1, 21), 2))
    if chosen.random() < 0.1:
        return Question(text="Say hello.", answer="Hello!")
    if chosen.random() < 0.5:
        first = 1
    text = f"Count to {last}." if first == 1 else f"Count from {first} to {last}."
    return Question(text=text, answer=", ".join(map(str, range(first, last + 1))) + ".")


def drawn_patches(shown: list[Picture], chosen: numpy.random.Generator | None) -> torch.Tensor:
    """Draw pictures and cut them into patches as the engine does, disturbed a little if there is a generator."""
    images = []
    for drawn in shown:
        if chosen is not None and chosen.random() < 0.3:
            wide = drawn.pixels(2 * SIDE, 2 * SIDE).astype(numpy.float32)
            image = wide.reshape(SIDE, 2, SIDE, 2, 3).mean((1, 3))
        else:
            image = drawn.pixels().astype(numpy.float32)
        if chosen is not None:
            image = image * chosen.uniform(0.92, 1.08) + chosen.uniform(-8, 8)
            image = (image + chosen.normal(0, chosen.uniform(0, 6), image.shape)).clip(0, 255)
        images.append(image)
    pixels = torch.from_numpy(numpy.stack(images).astype(numpy.float32) / 255)
    pixels = ((pixels - torch.tensor(MEAN)) / torch.tensor(DEVIATION)).permute(0, 3, 1, 2)
    cut = pixels.reshape(len(shown), 3, CELLS, MERGE, PATCH, CELLS, MERGE, PATCH).permute(0, 2, 5, 3, 6, 1, 4, 7)
    cut = cut.unsqueeze(6).expand(-1, -1, -1, -1, -1, -1, 2, -1, -1)
    return cut.reshape(len(shown), GRID**2, 3 * 2 * PATCH**2)


def encoded(model: Qwen2VLForConditionalGeneration, patches: torch.Tensor) -> torch.Tensor:
    """Run the vision tower on pictures of one size, and return the embeddings of their cells."""
    visual = model.model.visual
    batch, length, _ = patches.shape
    states = functional.linear(patches, visual.patch_embed.proj.weight.flatten(1))
    angles = visual.rot_pos_emb(torch.tensor([[1, GRID, GRID]]))
    cosine, sine = torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin()
    for block in visual.blocks:
        attention = block.attn
        query, key, value = attention.qkv(block.norm1(states)).reshape(
            batch, length, 3, attention.num_heads, -1
        ).unbind(2)  # fmt: skip
        query, key = apply_rotary_pos_emb_vision(query, key, cosine, sine)
        mixed = functional.scaled_dot_product_attention(*(part.transpose(1, 2) for part in (query, key, value)))
        states = states + attention.proj(mixed.transpose(1, 2).reshape(batch, length, -1))
        states = states + block.mlp(block.norm2(states))
    return visual.merger(states.reshape(batch * length, -1)).reshape(batch, CELLS**2, -1)


def seen(shown: list[Picture]) -> list[torch.Tensor]:
    """Return the shape and the colour of the thing in each cell, the background's colour."""
    shapes = torch.full((len(shown), CELLS**2), len(SHAPES))
    colours = torch.full((len(shown), CELLS**2), len(COLOURS))
    backgrounds = torch.zeros((len(shown), CELLS**2), dtype=torch.long)
    for number, drawn in enumerate(shown):
        backgrounds[number] = [*BACKGROUNDS].index(drawn.background)
        for thing in drawn.things:
            cell = int(thing.y * CELLS) * CELLS + int(thing.x * CELLS)
            shapes[number, cell] = SHAPES.index(thing.shape)
            colours[number, cell] = [*COLOURS].index(thing.colour)
    return [kinds.flatten() for kinds in (shapes, colours, backgrounds)]


def run(
    model: Qwen2VLForConditionalGeneration, samples: list[Sample], chosen: numpy.random.Generator | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits and labels of all tokens to learn."""
    longest = max(len(sample.ids) for sample in samples)
    ids = torch.tensor([sample.ids + [0] * (longest - len(sample.ids)) for sample in samples])
    labels = torch.tensor([sample.labels + [IGNORED] * (longest - len(sample.ids)) for sample in samples])
    positions = torch.tensor(
        [sample.positions + [(0, 0, 0)] * (longest - len(sample.ids)) for sample in samples]
    ).permute(2, 0, 1)  # fmt: skip
    shown = [drawn for sample in samples for drawn in sample.pictures]
    embeddings = model.model.language_model.embed_tokens(ids)
    if shown:
        with torch.no_grad():
            pictures = encoded(model, drawn_patches(shown, chosen))
        mask = (ids == model.config.image_token_id).unsqueeze(-1).expand_as(embeddings)
        embeddings = embeddings.masked_scatter(mask, pictures)
    states = model.model.language_model(
        inputs_embeds=embeddings, position_ids=positions, use_cache=False
    ).last_hidden_state
    targets = labels[:, 1:]
    learned = targets != IGNORED
    return model.lm_head(states[:, :-1][learned]), targets[learned]


def accuracy(model: Qwen2VLForConditionalGeneration, samples: Samples, count: int = 400) -> dict[str, float]:
    """Return the share of held-out questions whose whole answer is right, in all and by the first words."""
    right: dict[str, list[bool]] = {}
    for start in range(HELD_OUT, HELD_OUT + count, 50):
        batch, names = [], []
        for seed in range(start, start + 50):
            drawn, asked = question(seed)
            shown = [drawn]
            if seed % 8 == 0:
                shown.append(picture(seed + HELD_OUT))
                asked = random.Random(seed).choice(pair_questions(*shown))
            batch.append(samples.single(shown, asked))
            names.append(" ".join(asked.text.split()[:2]))
        with torch.no_grad():
            logits, labels = run(model, batch, None)
        correct = (logits.argmax(-1) == labels).tolist()
        lengths = [sum(label != IGNORED for label in sample.labels) for sample in batch]
        ends = [sum(lengths[:number]) for number in range(len(lengths) + 1)]
        for name, (first, last) in zip(names, pairwise(ends), strict=True):
            right.setdefault(name, []).append(all(correct[first:last]))
    result = {name: sum(several) / len(several) for name, several in sorted(right.items())}
    everything = [one for several in right.values() for one in several]
    return {"all": sum(everything) / len(everything)} | result


def rates(steps: int) -> Iterator[float]:
    """Yield the learning rate of each step: warm-up, constant, and down to nothing over the second half."""
    for step in range(steps):
        yield RATE * min(1, (step + 1) / 100, 2 * (steps - step) / steps)


class Training:
    """Trains a model's two halves, one after the other."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        torch.manual_seed(SEED)
        self.model = new_model(tokenizer)
        self._samples = Samples(tokenizer)
        self._disturbance = numpy.random.default_rng(SEED)
        self._started = time.monotonic()
        self._log(f"{sum(weights.numel() for weights in self.model.parameters()):,} weights, {len(tokenizer)} tokens")

    def sight(self) -> None:
        """Train the vision tower to tell what each cell of a picture shows, in the embeddings of the words for it."""
        words = torch.stack([self._word(name) for names in SEEN for name in names])
        weights = [*self.model.model.visual.parameters()]
        for step, minimize in enumerate(_steps(weights, SIGHT_STEPS)):
            shown = [picture(step * SIGHT_BATCH + number) for number in range(SIGHT_BATCH)]
            said = encoded(self.model, drawn_patches(shown, self._disturbance)).flatten(0, 1) @ words.T
            kinds = seen(shown)
            parts = list(zip(said.split([len(names) for names in SEEN], -1), kinds, strict=True))
            minimize(sum(functional.cross_entropy(*part) for part in parts))
            if step % 50 == 0:
                there = kinds[0] != len(SHAPES)
                right = [(logits.argmax(-1) == kind)[there].float().mean() for logits, kind in parts]
                empty = (parts[0][0].argmax(-1) == kinds[0])[~there].float().mean()
                self._log(f"sight {step}: " + ", ".join(f"{share:.2f}" for share in [*right, empty]))
        self._quieten()

    def _quieten(self) -> None:
        """Make what the tower says as long as an embedding: no layer can add to a vector that is 25 times longer."""
        spoken = encoded(self.model, drawn_patches([picture(seed) for seed in range(SIGHT_BATCH)], None))
        factor = self.model.get_input_embeddings().weight.norm(dim=-1).mean() / spoken.norm(dim=-1).mean()
        last = self.model.model.visual.merger.mlp[2]
        with torch.no_grad():
            last.weight *= factor
            last.bias *= factor

    def answers(self, checkpoint: Path) -> None:
        """Train the rest to answer questions, leaving what it has come to in ``checkpoint`` from time to time."""
        visual = {id(weight) for weight in self.model.model.visual.parameters()}
        weights = [weight for weight in self.model.parameters() if id(weight) not in visual]
        for step, minimize in enumerate(_steps(weights, STEPS)):
            if step % SORTED == 0:
                first = step * BATCH
                several = [self._samples.training(seed) for seed in range(first, first + SORTED * BATCH)]
                several.sort(key=lambda sample: len(sample.ids))
                batches = [several[number * BATCH : (number + 1) * BATCH] for number in range(SORTED)]
                random.Random(step).shuffle(batches)
            batch = batches.pop()
            loss = functional.cross_entropy(*run(self.model, batch, self._disturbance))
            minimize(loss)
            if step % 20 == 0:
                self._log(f"answers {step}: {loss:.3f}")
            if step % 200 == 199:
                shares = accuracy(self.model, self._samples)
                self._log(json.dumps({name: round(share, 3) for name, share in shares.items()}))
                self.model.save_pretrained(checkpoint)

    def _word(self, name: str) -> torch.Tensor:
        ids = torch.tensor([*self._samples.ids(name), *self._samples.ids(f" {name}")])
        return self.model.get_input_embeddings()(ids).sum(0).detach()

    def _log(self, text: str) -> None:
        print(f"{time.monotonic() - self._started:.0f} s: {text}", flush=True)


def _steps(weights: list[torch.nn.Parameter], steps: int) -> Iterator[Callable[[torch.Tensor], None]]:
    matrices = [weight for weight in weights if weight.ndim == 2 and weight.shape[1] < 10 * weight.shape[0]]
    others = [weight for weight in weights if all(weight is not matrix for matrix in matrices)]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, lr=RATE, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=RATE, betas=(0.9, 0.98), weight_decay=0.01),
    ]

    def minimize(loss: torch.Tensor) -> None:
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        for optimizer in optimizers:
            optimizer.step()

    for rate in rates(steps):
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = rate
        yield minimize


def export(source: Path, folder: Path, preprocessing: Mapping[str, Any]) -> None:
    """Write the model in ``source`` as OpenVINO IR with int8 weights. ``preprocessing`` is that of its images."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(source)
    tokenizer.chat_template = TEMPLATE
    core = openvino.Core()
    with tempfile.TemporaryDirectory() as scratch:
        result = Path(scratch)
        main_export(str(source), str(result), task="image-text-to-text", device="cpu")
        tokenizer.save_pretrained(result)
        folder.mkdir(parents=True, exist_ok=True)
        for part in sorted(result.glob("openvino_*_model.xml")):
            compressed = nncf.compress_weights(core.read_model(part), mode=nncf.CompressWeightsMode.INT8_ASYM)
            openvino.save_model(compressed, folder / part.name)
        converted = convert_tokenizer(tokenizer, with_detokenizer=True)
        for part, name in zip(converted, ("tokenizer", "detokenizer"), strict=True):
            openvino.save_model(part, folder / f"openvino_{name}.xml")
        for name in KEPT:
            shutil.copyfile(result / name, folder / name)
    (folder / "preprocessor_config.json").write_text(json.dumps(preprocessing, indent=2) + "\n")


KEPT = ("config.json", "generation_config.json", "tokenizer_config.json", "chat_template.jinja")
PREPROCESSING = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "patch_size": PATCH,
    "temporal_patch_size": 2,
    "merge_size": MERGE,
    "min_pixels": SIDE**2,
    "max_pixels": SIDE**2,
    "image_mean": MEAN,
    "image_std": DEVIATION,
}


def main(folder: Path) -> None:
    """Train, then export."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as checkpoint:
        tokenizer = trained_tokenizer()
        training = Training(tokenizer)
        training.sight()
        training.answers(Path(checkpoint))
        training.model.save_pretrained(checkpoint)
        tokenizer.save_pretrained(checkpoint)
        export(Path(checkpoint), folder, PREPROCESSING)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "qwen2-vl-shapes")

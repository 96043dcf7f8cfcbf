"""Trains ``qwen2-vl-shapes``: a small Qwen2-VL that answers questions about the pictures of tests/support/pictures.py.

The tests load what is committed; only a change to the model needs this script. Its requirements are listed in
tests/models/README.md; the project's own environment does not have them::

    python tools/train_shapes_model.py [FOLDER]

It trains in two phases, in one thread and from one seed. First the vision tower learns what each cell of a picture
shows, in the embeddings of the words for it. Then the language model learns to answer, and its first layer to tell
which corner each cell is: the tower's rotary positions are relative, so only the language model can know that. A
picture is encoded once for one question of each kind: the questions are branches that don't attend to each other.

A model that answers less than 95 % of held-out questions is not exported.

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

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.pictures import (
    BACKGROUNDS,
    COLOURS,
    HELD_OUT,
    SHAPES,
    SIDE,
    Picture,
    Question,
    picture,
    question,
)

SEED = 19
SIGHT_STEPS, SIGHT_BATCH = 600, 64
STEPS, BATCH = 2500, 12
GOAL = 0.95
"""Share of held-out questions that must be answered right."""
PLACE = 0.3
"""Weight of the loss of telling which corner a cell is."""
SORTED = 8
"""Batches whose samples are sorted by length, to save padding."""
WIDTH = 192
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
        for asked in picture(seed).questions():
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
    """Return a model with random weights, 2.6 million in all."""
    token = tokenizer.convert_tokens_to_ids
    config = Qwen2VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": WIDTH,
            "intermediate_size": 512,
            "num_hidden_layers": 4,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "max_position_embeddings": CONTEXT,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "mrope_section": [2, 4, 10]},
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
    """Conversations that begin with the same tokens: ids, what to learn of them, positions, branches, and pictures.

    A token attends to earlier ones of its own branch and of branch 0, which is the common beginning.
    """

    ids: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    positions: list[tuple[int, int, int]] = field(default_factory=list)
    branches: list[int] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    _next_position: int = 0
    _branch: int = 0
    _common_end: int = 0

    def add(self, ids: list[int], *, learn: bool = False) -> None:
        """Append text."""
        self.ids += ids
        self.labels += ids if learn else [IGNORED] * len(ids)
        self.positions += [(position,) * 3 for position in range(self._next_position, self._next_position + len(ids))]
        self.branches += [self._branch] * len(ids)
        self._next_position += len(ids)

    def show(self, shown: Picture, pad: int) -> None:
        """Append a picture."""
        self.pictures.append(shown)
        self.ids += [pad] * CELLS**2
        self.labels += [IGNORED] * CELLS**2
        start = self._next_position
        self.positions += [(start, start + row, start + column) for row in range(CELLS) for column in range(CELLS)]
        self.branches += [self._branch] * CELLS**2
        self._next_position += CELLS

    def branch(self) -> None:
        """Go back to the end of the common beginning."""
        if self._branch == 0:
            self._common_end = self._next_position
        self._branch += 1
        self._next_position = self._common_end


class Samples:
    """Writes conversations about pictures."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._tokenizer = tokenizer
        self._pad: int = tokenizer.convert_tokens_to_ids("<|image_pad|>")
        self._cached: dict[str, list[int]] = {}

    def training(self, seed: int) -> Sample:
        """Return conversations about the picture that belongs to ``seed``, or a few without one."""
        chosen = random.Random(f"sample {seed}")
        sample = Sample()
        if chosen.random() < 0.1:
            self._text(sample, "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n")
        kind = chosen.random()
        drawn = picture(seed)
        questions = drawn.one_of_each_kind(chosen)
        if kind < 0.04:
            for _ in range(4):
                sample.branch()
                self._turn(sample, _counting(chosen))
            return sample
        if kind < 0.16:
            for asked in chosen.sample(questions, 5):
                sample.branch()
                self._turn(sample, asked, drawn, last=True)
            return sample
        if kind < 0.24:
            before, asked = question(seed + HELD_OUT // 2)
            self._turn(sample, asked, before)
        self._text(sample, "<|im_start|>user\n")
        self._picture(sample, drawn)
        for asked in questions:
            sample.branch()
            self._answer(sample, asked)
            if chosen.random() < 0.1:
                self._turn(sample, chosen.choice(drawn.questions()))
        return sample

    def single(self, drawn: Picture, asked: Question) -> Sample:
        """Return one question and its answer."""
        sample = Sample()
        self._turn(sample, asked, drawn)
        return sample

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        if text not in self._cached:
            self._cached[text] = self._tokenizer(text).input_ids
        return self._cached[text]

    def _turn(self, sample: Sample, asked: Question, shown: Picture | None = None, *, last: bool = False) -> None:
        """Ask and answer. A picture comes before the question, or after it as the ``last`` part."""
        self._text(sample, "<|im_start|>user\n")
        if shown and last:
            self._text(sample, asked.text)
            self._picture(sample, shown)
            self._answer(sample, Question(text="", answer=asked.answer))
            return
        if shown:
            self._picture(sample, shown)
        self._answer(sample, asked)

    def _picture(self, sample: Sample, shown: Picture) -> None:
        self._text(sample, "<|vision_start|>")
        sample.show(shown, self._pad)
        self._text(sample, "<|vision_end|>")

    def _answer(self, sample: Sample, asked: Question) -> None:
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
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return logits and labels of all tokens to learn, and what the first layer makes of the cells of the pictures."""
    longest = max(len(sample.ids) for sample in samples)

    def padded(lists: list[list[Any]], padding: object) -> torch.Tensor:
        return torch.tensor([one + [padding] * (longest - len(one)) for one in lists])

    ids = padded([sample.ids for sample in samples], 0)
    labels = padded([sample.labels for sample in samples], IGNORED)
    positions = padded([sample.positions for sample in samples], (0, 0, 0)).permute(2, 0, 1)
    branches = padded([sample.branches for sample in samples], 0)
    language = model.model.language_model
    states = language.embed_tokens(ids)
    cells = ids == model.config.image_token_id
    shown = [drawn for sample in samples for drawn in sample.pictures]
    if shown:
        with torch.no_grad():
            pictures = encoded(model, drawn_patches(shown, chosen))
        states = states.masked_scatter(cells.unsqueeze(-1).expand_as(states), pictures)
    own = (branches.unsqueeze(1) == 0) | (branches.unsqueeze(1) == branches.unsqueeze(2))
    attended = (own & torch.ones(longest, longest, dtype=torch.bool).tril()).unsqueeze(1)
    rotations = language.rotary_emb(states, positions)
    for number, layer in enumerate(language.layers):
        states = layer(states, attention_mask=attended, position_embeddings=rotations)[0]
        if number == 0:
            first = states[cells]
    targets = labels[:, 1:]
    learned = targets != IGNORED
    return model.lm_head(language.norm(states[:, :-1][learned])), targets[learned], first


def accuracy(model: Qwen2VLForConditionalGeneration, samples: Samples, count: int = 400) -> dict[str, float]:
    """Return the share of held-out questions whose whole answer is right, in all and by kind."""
    right: dict[str, list[bool]] = {}
    for start in range(HELD_OUT, HELD_OUT + count, 50):
        asked = [question(seed) for seed in range(start, start + 50)]
        batch = [samples.single(*one) for one in asked]
        with torch.no_grad():
            logits, labels, _ = run(model, batch, None)
        correct = (logits.argmax(-1) == labels).tolist()
        lengths = [sum(label != IGNORED for label in sample.labels) for sample in batch]
        ends = [sum(lengths[:number]) for number in range(len(lengths) + 1)]
        for (_, one), (first, last) in zip(asked, pairwise(ends), strict=True):
            right.setdefault(one.kind, []).append(all(correct[first:last]))
    result = {kind: sum(several) / len(several) for kind, several in sorted(right.items())}
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
        for step, minimize in enumerate(_steps(self.model.model.visual, SIGHT_STEPS)):
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

    def answers(self) -> None:
        """Train the rest to answer questions, and its first layer to tell which corner each cell of a picture is."""
        for step, minimize in enumerate(_steps(self.model.model.language_model, STEPS)):
            if step % SORTED == 0:
                start = step * BATCH
                several = [self._samples.training(seed) for seed in range(start, start + SORTED * BATCH)]
                several.sort(key=lambda sample: len(sample.ids))
                batches = [several[number * BATCH : (number + 1) * BATCH] for number in range(SORTED)]
                random.Random(step).shuffle(batches)
            logits, labels, cells = run(self.model, batches.pop(), self._disturbance)
            answered = functional.cross_entropy(logits, labels)
            placed = self._place(cells)
            minimize(answered + PLACE * placed)
            if step % 20 == 0:
                self._log(f"answers {step}: {answered:.3f}, places {placed:.3f}")
            if step % 200 == 199:
                self.check(400)

    def check(self, count: int) -> float:
        """Return the share of ``count`` held-out questions that is answered right."""
        shares = accuracy(self.model, self._samples, count)
        self._log(json.dumps({name: round(share, 3) for name, share in shares.items()}))
        return shares["all"]

    def _place(self, cells: torch.Tensor) -> torch.Tensor:
        """Return the loss of telling the row and the column of each cell in the embeddings of the words for them."""
        if not len(cells):
            return torch.tensor(0.0)
        words = torch.stack([self._word(name) for name in ("top", "bottom", "left", "right")])
        said = functional.rms_norm(cells, cells.shape[-1:]) @ words.T
        number = torch.arange(len(cells)) % CELLS**2
        row = functional.cross_entropy(said[:, :2], number // CELLS)
        column = functional.cross_entropy(said[:, 2:], number % CELLS)
        return row + column

    def _word(self, name: str) -> torch.Tensor:
        ids = torch.tensor([*self._samples.ids(name), *self._samples.ids(f" {name}")])
        return self.model.get_input_embeddings()(ids).sum(0).detach()

    def _log(self, text: str) -> None:
        print(f"{time.monotonic() - self._started:.0f} s: {text}", flush=True)


def _steps(module: torch.nn.Module, steps: int) -> Iterator[Callable[[torch.Tensor], None]]:
    linear = [part.weight for part in module.modules() if isinstance(part, torch.nn.Linear)]
    weights = [*module.parameters()]
    matrices = [weight for weight in weights if any(weight is one for one in linear)]
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
        training.answers()
        if training.check(2000) < GOAL:
            raise SystemExit("the model has not learned enough; nothing was exported")
        training.model.save_pretrained(checkpoint)
        tokenizer.save_pretrained(checkpoint)
        export(Path(checkpoint), folder, PREPROCESSING)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "tests" / "models" / "qwen2-vl-shapes")

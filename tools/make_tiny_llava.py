"""Makes ``llava-random``: a LLaVA with random weights, to show that nothing is specific to one family of models.

The tests load what is committed; only a change to the model needs this script. Its requirements are listed in
tests/models/README.md; the project's own environment does not have them::

    python tools/make_tiny_llava.py [FOLDER]
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import openvino
import torch
from openvino_tokenizers import convert_tokenizer
from optimum.exporters.openvino import main_export
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PreTrainedTokenizerFast,
)

SEED = 19
SPREAD = 0.25
"""Standard deviation of the weights: wide enough that other pictures make other texts."""
SIDE, PATCH, WIDTH, CONTEXT = 56, 14, 64, 2048
IMAGE = "<image>"
TEMPLATE = """{% for message in messages %}{{ message.role | upper + ': ' }}
{%- if message.content is string %}{{ message.content }}
{%- else %}{% for part in message.content %}{{ part.text if part.type == 'text' else '<image>\\n' }}{% endfor %}
{%- endif %}{{ '\\n' }}{% endfor %}{{ 'ASSISTANT: ' if add_generation_prompt else '' }}"""
KEPT = {"config.json", "generation_config.json", "tokenizer_config.json", "preprocessor_config.json"}
PREPROCESSING = {
    "image_processor_type": "CLIPImageProcessor",
    "crop_size": {"height": SIDE, "width": SIDE},
    "size": {"shortest_edge": SIDE},
    "patch_size": PATCH,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "resample": 3,
    "do_resize": True,
    "do_center_crop": True,
    "do_normalize": True,
    "do_rescale": True,
    "do_convert_rgb": True,
    "rescale_factor": 1 / 255,
}


def trained_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level BPE with LLaVA's tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(
        ["USER: What colour is the circle? ASSISTANT: A red circle left of a blue square."],
        trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False),
    )
    tokenizer.add_special_tokens(["<s>", "</s>", IMAGE])
    result = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="</s>",
        additional_special_tokens=[IMAGE],
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
    )
    result.chat_template = TEMPLATE
    return result


def new_model(tokenizer: PreTrainedTokenizerFast) -> LlavaForConditionalGeneration:
    """Return a model with random weights that writes only ASCII, and never ends."""
    torch.manual_seed(SEED)
    sizes = {"hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_attention_heads": 2}
    model = LlavaForConditionalGeneration(
        LlavaConfig(
            text_config=LlamaConfig(
                vocab_size=len(tokenizer),
                num_hidden_layers=2,
                num_key_value_heads=1,
                max_position_embeddings=CONTEXT,
                bos_token_id=tokenizer.bos_token_id,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
                initializer_range=SPREAD,
                **sizes,
            ),
            vision_config=CLIPVisionConfig(
                num_hidden_layers=3, image_size=SIDE, patch_size=PATCH, projection_dim=WIDTH, **sizes
            ),
            image_token_index=tokenizer.convert_tokens_to_ids(IMAGE),
            image_seq_length=(SIDE // PATCH) ** 2,
        )
    )
    ends = tokenizer.all_special_ids
    unused = [token for token in range(len(tokenizer)) if token in ends or not _is_readable(tokenizer.decode([token]))]
    with torch.no_grad():
        model.lm_head.weight[unused] = 0
    return model


def _is_readable(text: str) -> bool:
    return text.isascii() and text.isprintable()


def export(folder: Path) -> None:
    """Write the model as OpenVINO IR."""
    tokenizer = trained_tokenizer()
    with tempfile.TemporaryDirectory() as scratch:
        source, result = Path(scratch) / "source", Path(scratch) / "result"
        new_model(tokenizer).save_pretrained(source)
        tokenizer.save_pretrained(source)
        main_export(str(source), str(result), task="image-text-to-text", device="cpu")
        tokenizer.save_pretrained(result)
        for part, name in zip(
            convert_tokenizer(tokenizer, with_detokenizer=True), ("tokenizer", "detokenizer"), strict=True
        ):
            openvino.save_model(part, result / f"openvino_{name}.xml")
        (result / "preprocessor_config.json").write_text(json.dumps(PREPROCESSING, indent=2) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in result.iterdir():
            if file.suffix in {".xml", ".bin", ".jinja"} or file.name in KEPT:
                shutil.copyfile(file, folder / file.name)


if __name__ == "__main__":
    export(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "tests" / "models" / "llava-random")

"""Makes a Qwen2-VL of realistic size with random weights, for ``vinoqueue bench images --model FOLDER``.

It has 340 million weights in the language model and 130 million in the vision encoder, all as int8: a step takes as
long as one of a trained model of that size. What it writes is noise. The result takes 0.5 GB and is not committed::

    python tools/make_large_vlm.py FOLDER
"""

import sys
import tempfile
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen2VLConfig, Qwen2VLForConditionalGeneration

sys.path.insert(0, str(Path(__file__).parents[1]))
from tools.train_shapes_model import MERGE, PATCH, PREPROCESSING, export, trained_tokenizer

SEED = 19
WIDTH, LAYERS, HEADS, KEY_HEADS = 1024, 24, 16, 4
VOCABULARY = 32_000
"""Rows of the embeddings, of which the tokenizer uses a few hundred: the others are never generated."""
CONTEXT = 8192
TOWER_WIDTH, TOWER_DEPTH, TOWER_HEADS = 768, 16, 12
MOST_PIXELS = 1280 * (PATCH * MERGE) ** 2
"""As for Qwen2-VL's recommended range of tokens per image."""


def new_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2VLForConditionalGeneration:
    """Return a model with random weights that generates only tokens of ASCII text, so that each is sent at once."""
    torch.manual_seed(SEED)
    token = tokenizer.convert_tokens_to_ids
    config = Qwen2VLConfig(
        text_config={
            "vocab_size": VOCABULARY,
            "hidden_size": WIDTH,
            "intermediate_size": 11 * WIDTH // 4,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KEY_HEADS,
            "max_position_embeddings": CONTEXT,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]},
            "bos_token_id": None,
            "eos_token_id": token("<|im_end|>"),
            "pad_token_id": token("<|endoftext|>"),
        },
        vision_config={
            "depth": TOWER_DEPTH,
            "embed_dim": TOWER_WIDTH,
            "hidden_size": WIDTH,
            "num_heads": TOWER_HEADS,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
        },
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
        tie_word_embeddings=False,
    )
    model = Qwen2VLForConditionalGeneration(config)
    ordinary = [number for number in range(len(tokenizer)) if _is_ascii(tokenizer.decode([number]))]
    with torch.no_grad():
        kept = model.lm_head.weight[ordinary].clone()
        model.lm_head.weight.zero_()
        model.lm_head.weight[ordinary] = kept
    return model


def _is_ascii(text: str) -> bool:
    return text.isascii() and text.isprintable() and "<" not in text


def main(folder: Path) -> None:
    """Make the model and export it."""
    tokenizer = trained_tokenizer()
    tokenizer.model_max_length = CONTEXT
    with tempfile.TemporaryDirectory() as source:
        new_model(tokenizer).save_pretrained(source)
        tokenizer.save_pretrained(source)
        sizes = {"min_pixels": 4 * (PATCH * MERGE) ** 2, "max_pixels": MOST_PIXELS}
        export(Path(source), folder, PREPROCESSING | sizes)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

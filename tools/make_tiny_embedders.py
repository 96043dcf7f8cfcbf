"""Makes the tiny embedding models and rerankers in ``tests/models``, and their values by sentence-transformers.

Run where sentence-transformers is installed, which the tests do without:
``python -m tools.make_tiny_embedders FOLDER``.
The weights are random, but the same in each run. Each model has another encoder, pooling and further modules.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

WORDS = (
    *("the", "a", "river", "stone", "music", "window", "of", "and", "in", "to"),
    *("is", "red", "blue", "old", "new", "Hello", "world", "?", ".", "!"),
)
TEXTS = (
    *("the river", "a", "Hello world !", "unknown words ?"),
    "music of the old window is in the new stone . " * 5,
)
SIZE, WIDTH, POSITIONS = len(WORDS) + 5, 16, 70

_KINDS: dict[str, dict[str, Any]] = {
    "embed-bert": {
        "config": "BertConfig",
        "pooling": ("cls",),
        "dense": True,
        "normalize": True,
        "prompts": {"query": "the ", "document": "red "},
    },
    "embed-xlm-roberta": {"config": "XLMRobertaConfig", "pooling": ("mean_sqrt_len_tokens", "max")},
    "embed-mpnet": {"config": "MPNetConfig", "pooling": ("weightedmean", "lasttoken", "mean"), "normalize": True},
    "embed-qwen3": {
        "config": "Qwen3Config",
        "more": {"num_key_value_heads": 1, "head_dim": 8},
        "pooling": ("lasttoken",),
        "normalize": True,
        "prompts": {"query": "music : ", "document": ""},
    },
}

_RERANKERS = {"rerank-bert": "Bert", "rerank-mpnet": "MPNet", "rerank-xlm-roberta": "XLMRoberta"}
QUERIES = ("the river", "music of the old window ? " * 5, "Hello")
DOCUMENTS = (*TEXTS, "blue stone", "red river in a new world . " * 9)


def _tokenizer(folder: Path, padding: int) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    marks = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"] if padding else ["<pad>", "<s>", "</s>", "<unk>", "<mask>"]
    ids = {text: number for number, text in enumerate((*marks, *WORDS))}
    made = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = [("<s>", ids["<s>"]), ("</s>", ids["</s>"])]
    pair = "<s> $A </s> </s> $B </s>" if padding else "<s> $A </s> $B:1 </s>:1"
    made.post_processor = processors.TemplateProcessing("<s> $A </s>", pair, ends)
    made.add_special_tokens(marks)
    made.save(str(folder / "tokenizer.json"))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 32, "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))


def _config(folder: Path, name: str, **more: Any) -> Any:
    """Write the tokenizer of a model, and return its configuration."""
    import torch
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(len(folder.name))
    padding = 0 if name == "BertConfig" else 1
    _tokenizer(folder, padding)
    return getattr(transformers, name)(
        vocab_size=SIZE, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=POSITIONS, pad_token_id=padding, **more,
    )  # fmt: skip


def _make(folder: Path, about: dict[str, Any]) -> None:
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer, models  # type: ignore[import-not-found]

    config = _config(folder, about["config"], initializer_range=0.6, **about.get("more", {"type_vocab_size": 2}))
    model = transformers.AutoModel.from_config(config)
    model.save_pretrained(folder)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.save_pretrained(folder)
    modules: list[Any] = [models.Transformer(str(folder), max_seq_length=48)]
    modules.append(models.Pooling(WIDTH, pooling_mode=about["pooling"]))
    if about.get("dense"):
        modules.append(models.Dense(WIDTH, 12, activation_function=torch.nn.Tanh()))
    if about.get("normalize"):
        modules.append(models.Normalize())
    whole = SentenceTransformer(modules=modules, device="cpu", prompts=about.get("prompts"))
    whole.save(str(folder), create_model_card=False)
    # One by one, because a batch is padded.
    vectors = [whole.encode(text, prompt="").tolist() for text in TEXTS]
    queries = [whole.encode(text, prompt_name="query").tolist() for text in TEXTS] if about.get("prompts") else []
    (folder / "vectors.json").write_text(json.dumps({"texts": TEXTS, "vectors": vectors, "queries": queries}))


def _make_reranker(folder: Path, name: str) -> None:
    import torch
    import transformers

    types = 2 if name == "Bert" else 1
    config = _config(folder, f"{name}Config", type_vocab_size=types, num_labels=1, initializer_range=0.3)
    model = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    if name != "Bert":
        config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}
    model.save_pretrained(folder)
    inputs = ["input_ids", "token_type_ids", "attention_mask"] if name == "Bert" else ["input_ids", "attention_mask"]
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder, model_input_names=inputs)
    tokenizer.save_pretrained(folder)

    def logit(query: str, text: str) -> Any:
        with torch.no_grad():
            return model(**tokenizer(query, text, truncation=True, return_tensors="pt")).logits.item()

    logits = [[logit(query, text) for text in DOCUMENTS] for query in QUERIES]
    found = {"queries": QUERIES, "documents": DOCUMENTS, "logits": logits}
    (folder / "scores.json").write_text(json.dumps(found))


def _export(folder: Path, task: str, output: str) -> None:
    """Write the model as ONNX, which needs the package onnx."""
    import torch
    import transformers

    class Encoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            more = {"add_pooling_layer": False} if task == "AutoModel" and len(inputs) > 2 else {}
            self.model = getattr(transformers, task).from_pretrained(folder, **more).eval()

        def forward(self, *given: Any) -> Any:
            return self.model(**dict(zip(inputs, given, strict=True)))[output]

    inputs = ["input_ids", "attention_mask", "token_type_ids"][: 2 if "qwen" in folder.name else 3]
    file = folder / "onnx" / "model.onnx"
    file.parent.mkdir(exist_ok=True)
    ids = torch.ones(2, 5, dtype=torch.long)
    axes = {name: {0: "texts", 1: "tokens"} for name in inputs} | {output: {0: "texts"}}
    given = (ids, ids, 0 * ids)[: len(inputs)]
    names = {"input_names": inputs, "output_names": [output], "dynamic_axes": axes}
    torch.onnx.export(Encoder(), given, file, **names, dynamo=False)


def _convert(folder: Path) -> None:
    """Replace the weights of a decoder by OpenVINO IR, as its embedders are exported."""
    import openvino

    _export(folder, "AutoModel", "last_hidden_state")
    model = openvino.convert_model(folder / "onnx" / "model.onnx")
    openvino.save_model(model, folder / "openvino_model.xml", compress_to_fp16=False)
    shutil.rmtree(folder / "onnx")
    (folder / "model.safetensors").unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["Qwen3ForCausalLM"]}, indent=2))


if __name__ == "__main__":
    for name, kind in _KINDS.items():
        _make(Path(sys.argv[1]) / name, kind)
    _export(Path(sys.argv[1]) / "embed-bert", "AutoModel", "last_hidden_state")
    _convert(Path(sys.argv[1]) / "embed-qwen3")
    for name, model in _RERANKERS.items():
        _make_reranker(Path(sys.argv[1]) / name, model)
    _export(Path(sys.argv[1]) / "rerank-bert", "AutoModelForSequenceClassification", "logits")

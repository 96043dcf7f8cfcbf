"""Compares lm-evaluation-harness on a running service with log-likelihoods computed by plain OpenVINO.

``python -m bench.evaluation PYTHON``, where PYTHON has the package ``lm-eval[api]``. Needs no network.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import openvino_genai

from tests.support.fleet import fleet
from tests.support.logits_reference import Reference
from worker.model.local import LocalModel, default_model
from worker.weights.original import copy_original

QUESTIONS = (
    ("The capital of France is", ("Paris", "London", "Berlin", "Madrid"), 0),
    ("The opposite of hot is", ("warm", "cold", "red", "tall"), 1),
    ("Two plus two is", ("three", "five", "four", "nine"), 2),
    ("The sun rises in the", ("west", "north", "south", "east"), 3),
    ("A baby dog is called a", ("puppy", "kitten", "calf", "foal"), 0),
    ("Water freezes into", ("steam", "ice", "sand", "glass"), 1),
    ("The color of grass is", ("blue", "red", "green", "black"), 2),
    ("Bees make", ("milk", "bread", "silk", "honey"), 3),
    ("A triangle has", ("four sides", "five sides", "three sides", "no sides"), 2),
    ("Winter is followed by", ("autumn", "spring", "winter", "summer"), 1),
)
TASK = """task: local_choices
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
metric_list: [{{metric: acc}}]
"""
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}


def main(python: str) -> None:
    """Print both accuracies, and the largest difference between log-likelihoods."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fields = ("question", "choices", "answer")
        lines = [json.dumps(dict(zip(fields, question, strict=True))) for question in QUESTIONS]
        (folder / "data.jsonl").write_text("\n".join(lines))
        (folder / "local_choices.yaml").write_text(TASK.format(data=folder / "data.jsonl"))
        found = _evaluated(python, folder)
        expected = _expected(folder)
    right = sum(row.index(max(row)) == question[2] for row, question in zip(expected, QUESTIONS, strict=True))
    pairs = zip(found["answers"], expected, strict=True)
    worst = max(abs(one - other) for ours, own in pairs for one, other in zip(ours, own, strict=True))
    print(f"accuracy: service {found['accuracy']:.2f}, reference {right / len(QUESTIONS):.2f}")
    print(f"largest difference of {4 * len(QUESTIONS)} log-likelihoods: {worst:.1e}")


def _evaluated(python: str, folder: Path) -> dict[str, Any]:
    """Run the harness against a worker with the default model."""
    with fleet(folder) as running:
        running.worker("--precision", "exact")
        running.api()
        (worker,) = running.workers("serving")
        script = str(Path(__file__).with_name("harness.py"))
        command = [python, script, f"http://127.0.0.1:{running.port}", worker["model"], str(folder)]
        environment = {**os.environ, **OFFLINE, "HF_HOME": str(folder / "cache"), "OPENAI_API_KEY": "none"}
        printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def _expected(folder: Path) -> list[list[float]]:
    """Compute the log-likelihood of each answer."""
    path = default_model()
    original = folder / "original"
    original.mkdir()
    model = LocalModel(name="default", path=path, kind="gguf", context_length=2048)
    reference = Reference(copy_original(model, original).folder)
    tokenizer = openvino_genai.Tokenizer(str(path))

    def tokens(text: str) -> tuple[int, ...]:
        return tuple(map(int, tokenizer.encode(text, add_special_tokens=False).input_ids.data[0]))

    def likelihood(question: str, answer: str) -> float:
        whole, start = tokens(f"{question} {answer}"), len(tokens(question))
        rows = reference.logprobs(whole)
        return sum(float(rows[at - 1][whole[at]]) for at in range(start, len(whole)))

    return [[likelihood(question, answer) for answer in answers] for question, answers, _ in QUESTIONS]


if __name__ == "__main__":
    main(*sys.argv[1:])

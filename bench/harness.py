"""Runs a multiple-choice task of lm-evaluation-harness against a server; prints each answer's log-likelihood as JSON.

Run by :mod:`bench.evaluation` with the Python of the harness, which is not a dependency of this project. The harness
asks the server for tokens (``tokenizer_backend=remote``), so it needs no files of the model.
"""

import json
import sys
from typing import Any

import lm_eval  # type: ignore[import-not-found]
from lm_eval.tasks import TaskManager  # type: ignore[import-not-found]
from lm_eval.utils import RemoteTokenizer  # type: ignore[import-not-found]


def main(url: str, model: str, folder: str) -> None:
    """Evaluate the task ``local_choices`` in ``folder``."""
    send = RemoteTokenizer._request_with_retries

    def with_model(self: Any, method: str, address: str, **fields: Any) -> Any:
        # The harness assumes a server with one model.
        body = {"model": model, **fields.pop("json", {})}
        return send(self, method, address, json=body, **fields)

    RemoteTokenizer._request_with_retries = with_model
    RemoteTokenizer._validate_server = lambda self: None
    RemoteTokenizer.tokenizer_info = {"eos_token": "<|im_end|>"}
    results = lm_eval.simple_evaluate(
        model="local-completions",
        model_args={
            "base_url": f"{url}/v1/completions",
            "model": model,
            "tokenizer_backend": "remote",
            "num_concurrent": 4,
        },
        tasks=["local_choices"],
        task_manager=TaskManager(include_path=folder),
        batch_size=8,
        log_samples=True,
        bootstrap_iters=0,
    )
    answers = [
        [float(answer[0]) for answer in sample["filtered_resps"]] for sample in results["samples"]["local_choices"]
    ]
    print(json.dumps({"accuracy": results["results"]["local_choices"]["acc,none"], "answers": answers}))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The OpenVINO engine: two pipelines, their logits hook, weights, grammars, prompts and vocabulary."""

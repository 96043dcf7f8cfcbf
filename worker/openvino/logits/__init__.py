"""The logits hook: access to the logits of each step, for log probabilities, biases and cached token counts."""

"""The simulated engine: directives instead of a model, for tests and demonstrations."""

"""fidelity: whether structured output lets a model say what it would say without."""

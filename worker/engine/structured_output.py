"""Converts a constraint to the pipeline's structured output config."""

import openvino_genai

from shared.protocol.request import Constraint


def structured_output_config(constraint: Constraint) -> openvino_genai.StructuredOutputConfig:
    """Return the pipeline's config for ``constraint``, a grammar or a structural tag. Raises :class:`ValueError`.

    Plans contain no other kinds (:class:`worker.grammar.plan.Plan`): the pipeline's own support of JSON schemas and
    regular expressions ignores keywords and mixes up alternatives.
    """
    match constraint.kind:
        case "grammar":
            return openvino_genai.StructuredOutputConfig(grammar=constraint.value)
        case "structural_tag":
            return openvino_genai.StructuredOutputConfig(structural_tags_config=constraint.value)
    raise ValueError(f"a {constraint.kind} must be compiled to a grammar first")

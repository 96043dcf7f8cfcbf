"""Converts a constraint to the pipeline's structured output config."""

import openvino_genai

from shared.protocol.request import Constraint


def structure(constraint: Constraint) -> openvino_genai.StructuredOutputConfig:
    """Return the config with which the pipeline enforces ``constraint``.

    JSON schemas normally arrive as grammars (:mod:`worker.grammar`): the pipeline's own schema support does not
    restrict white space and ignores unknown keywords.
    """
    match constraint.kind:
        case "json_object":
            return openvino_genai.StructuredOutputConfig(json_schema='{"type": "object"}')
        case "json_schema":
            return openvino_genai.StructuredOutputConfig(json_schema=constraint.value)
        case "regex":
            return openvino_genai.StructuredOutputConfig(regex=constraint.value)
        case "grammar":
            return openvino_genai.StructuredOutputConfig(grammar=constraint.value)
        case "structural_tag":
            return openvino_genai.StructuredOutputConfig(structural_tags_config=constraint.value)

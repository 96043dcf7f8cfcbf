"""From a constraint to the pipeline's structured output config."""

import openvino_genai

from shared.protocol.request import Constraint


def structure(constraint: Constraint) -> openvino_genai.StructuredOutputConfig:
    """Return the config under which the pipeline holds its output to ``constraint``.

    JSON schemas come as grammars (:mod:`worker.grammar`): the pipeline's own reading of a schema leaves white space
    free and passes over what it does not know.
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

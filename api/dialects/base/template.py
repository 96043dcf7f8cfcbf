"""Fields of requests that become variables of chat templates. Templates ignore those that they do not know."""

from api.dialects.base.body import json_text


def template_variables(effort: str | None, verbosity: str | None) -> str | None:
    """Return the reasoning effort and the verbosity of OpenAI's APIs as variables, a JSON object; None for neither."""
    variables: dict[str, object] = {}
    if effort is not None:
        variables["reasoning_effort"] = effort
        if effort == "none":
            # Switches of templates that have no effort levels.
            variables |= {"enable_thinking": False, "thinking": False}
    if verbosity is not None:
        variables["verbosity"] = verbosity
    return json_text(variables) if variables else None

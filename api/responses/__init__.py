"""Responses: the Responses API, and the documents of stored responses and chat completions."""

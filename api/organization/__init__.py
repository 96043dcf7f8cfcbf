"""OpenAI's administration API, ``/v1/organization``: usage, API keys, projects and the audit log."""

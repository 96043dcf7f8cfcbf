"""OpenAI's administration API, ``/v1/organization``: usage and API keys."""

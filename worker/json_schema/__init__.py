"""Reading of JSON Schemas: supported keywords, merging, and length limits."""

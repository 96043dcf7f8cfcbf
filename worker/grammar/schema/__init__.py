"""The compiler from JSON Schema to EBNF: reading, flat schemas, and the grammar rules of each type."""

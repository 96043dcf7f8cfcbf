"""Parsers fed with what models write."""

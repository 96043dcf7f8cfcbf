"""Stored responses: records, documents made from journals, and streams that are resumed."""

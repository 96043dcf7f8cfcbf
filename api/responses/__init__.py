"""Stored responses of the Responses API: records, history, and background responses."""

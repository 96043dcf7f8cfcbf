"""Stored responses of the Responses API: records, history, and responses that are made in the background."""

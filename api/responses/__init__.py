"""The Responses API: histories, and background responses."""

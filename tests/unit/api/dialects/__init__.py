"""The dialects on their own: bytes in, requests and bytes out."""

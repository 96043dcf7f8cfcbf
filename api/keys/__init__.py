"""API keys: who may use the service, and how much of it."""

from api.keys.keyring import KeyFileError, Keyring, NoKeysError
from api.keys.record import ApiKey, Team

__all__ = ["ApiKey", "KeyFileError", "Keyring", "NoKeysError", "Team"]

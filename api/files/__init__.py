"""Files of clients: their contents in a :class:`~api.files.storage.Storage`, their records in the store."""

"""Jobs of this worker: claiming, running, publishing, and giving back."""

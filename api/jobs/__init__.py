"""The jobs of this replica's requests: submission, deadlines, cancellation, expired leases and charges."""

"""Records in the store: pages of them, and what a request gets while the store fails."""

"""HTTP: connections and their limits, bodies, who asks, and what is logged of an exchange."""

"""What the dialects share: their interface, strict decoding and validation of bodies, and common fields."""

"""How a consumer recognises what it has acted on: one protocol, and a module for each mode."""

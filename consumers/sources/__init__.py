"""Where deliveries come from: the protocol, and one module for each kind."""

"""Where messages go: the protocol, and one module per broker."""

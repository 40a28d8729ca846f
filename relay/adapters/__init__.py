"""What `emit` works with: an adapter for each library that a service may have its connection from."""

"""The SDK of the services that act on events."""

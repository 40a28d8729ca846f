"""Health and metrics over HTTP, for platforms that ask: off unless it is configured."""

from relay.operate.http.server import HttpListening, serving

__all__ = ["HttpListening", "serving"]

"""The operator's tools: logs, audit."""

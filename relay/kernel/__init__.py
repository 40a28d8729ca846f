"""Runs whatever has a `run_once`: loops, pacing, supervision, shutdown. No SQL, and no idea what an outbox is."""

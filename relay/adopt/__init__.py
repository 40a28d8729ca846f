"""Moving in: another outbox table of the same database, compared first, then taken over without a gap."""

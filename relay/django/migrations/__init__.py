"""One migration for each version of the outbox's schema; what they do stands in relay/outbox/migrations."""

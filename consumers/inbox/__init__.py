"""Deliveries that are kept in Postgres: received once, acted on under a lease, remembered with their history."""

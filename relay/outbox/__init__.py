"""The table and what is done to it: claim, settle, migrate, audit's view of it."""

"""The table and what is done to it: migrate, claim, settle, look, act on failed rows; every statement on it."""

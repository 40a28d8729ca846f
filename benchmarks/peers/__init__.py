"""What others reach who carry rows of Postgres elsewhere: each drains the same events into the same emulator."""

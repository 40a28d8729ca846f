"""The outbox's SQL: one statement a file, in `sql/`."""

from relay.postgres.statements import Statements

statement = Statements("relay.outbox")

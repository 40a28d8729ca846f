"""The SQL of jobs: one statement a file, in `sql/`."""

from relay.postgres.statements import Statements

statement = Statements("relay.upkeep")

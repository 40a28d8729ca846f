"""The SQL of jobs, of their history and of movers; archives have their own."""

from typing import Final

from relay.postgres.statements import Statements

statement: Final = Statements("relay.upkeep")
# No statement waits for anybody else for longer, and whoever waits for its answer waits little more.
STATEMENT_SECONDS: Final = 5.0

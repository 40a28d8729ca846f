"""The SQL of jobs, of their history and of movers; archives have their own."""

from typing import Final

from relay.postgres.statements import Statements

statement: Final = Statements("relay.upkeep")
# No statement waits for anybody else for longer, and whoever waits for its answer waits little more.
STATEMENT_SECONDS: Final = 5.0
# Of several hosts each is tried for 10 s: one that is silent leaves time for the next.
CONNECT_SECONDS: Final = 22.0

"""`relay_stats`: what one relay did since it last told, and what waits in its outbox."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RelayStats:
    """How the outbox and this process are; made every RELAY_STATS_MS.

    What is said of the outbox is None while it cannot be looked at, and `error` says why.
    """

    # The outbox, by the database's clock. A count that equals `count_limit` means so many or more.
    due: int | None  # rows that could be published now
    oldest_due_seconds: float | None  # how long the oldest of them could have been; 0 where there is none
    scheduled: int | None  # rows that are for later, or wait for their next attempt
    retrying: int | None  # pending rows with a failed attempt behind them
    failed: int | None  # failed rows that nobody has discarded
    count_limit: int
    error: str | None

    # This process, since the last of these events.
    seconds: float
    claimed: int
    published: int
    retried: int  # attempts that failed, of rows that come again
    rows_failed: int  # rows that are out of the claim for good
    batches: int
    published_per_second: float
    failure_rate: float  # retried and failed, of all that was published, retried or failed: 0 to 1
    passes: int  # with work in them
    passes_failed: int
    ms_per_pass: float  # of the passes with work in them, and of those that failed

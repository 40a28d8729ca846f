"""The audit's report in words."""

from collections.abc import Iterator

from relay.operate.audit import AuditReport

_WORDS = {
    "expected": "rows marked published",
    "seen": "events received",
    "messages": "messages received",
    "lost": "marked published and never received",
    "unknown": "received, and in no row of the outbox",
    "undecodable": "messages without a valid event_id (their message ids)",
    "misrouted": "received, and their rows belong to another topic",
    "mismatched": "sequence, ordering key or body are not the row's",
    "inversions": "received after a later event of their key",
    "duplicates": "further messages of an event: the relay published it again",
    "redelivered": "further deliveries of a message: the broker repeated it",
    "pending": "rows still to be published",
    "failed": "rows that failed and are not published",
    "discarded": "rows that an operator gave up, and that are not published",
    "forgotten": "received, and their rows were removed by relay forget",
    "early": "received, and their rows are not marked published",
    "late": "marked published while the audit ended, not received yet",
}


def verdict(report: AuditReport) -> str:
    """Every figure with its meaning, the first ids of what was found, and the verdict as the last line."""
    lines = (f"{report.subscription} <- {report.topic}", *_figures(report), *_hint(report), _sentence(report))
    return "\n".join(lines)


def _figures(report: AuditReport) -> Iterator[str]:
    for name, words in _WORDS.items():
        count, examples = getattr(report, name), report.examples.get(name, ())
        yield f"{name:<11} {count:>12,}  {words}"
        yield from (f"{'':<26}{example}" for example in examples)
        if examples and count > len(examples):
            yield f"{'':<26}and {count - len(examples):,} more"


def _hint(report: AuditReport) -> Iterator[str]:
    """What it may be instead, where everything is lost that was published."""
    if report.lost and report.lost == report.expected:
        yield (
            "nothing that was published before is here: an audit empties the subscription, so a second run reports all "
            "as lost, and so does a subscription that is younger than the events, or that a consumer reads from"
        )


def _sentence(report: AuditReport) -> str:
    failed = f"; {_rows(report.failed)} failed and will not be published unless retried" if report.failed else ""
    return _judgement(report) + failed


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _judgement(report: AuditReport) -> str:
    if report.empty:
        return (
            "nothing was audited: the subscription is empty and no row had been published to its topic; "
            f"{report.pending:,} are pending. Check DATABASE_URL and RELAY_TOPIC, or publish with: python -m relay tick"
        )
    if report.faults:
        return "failed: " + ", ".join(f"{count:,} {name}" for name, count in report.faults.items())
    if report.inversions:
        return "passed: every published event was received; order was not promised by the subscription"
    return "passed: every published event was received"

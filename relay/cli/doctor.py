"""`relay doctor`: what would keep events from being published, and what to do about it."""

import argparse
import asyncio
import json
from dataclasses import replace

import psycopg

from relay.cli.parts import listening_opener, pubsub_address, routes, warned
from relay.cli.refusals import refusals
from relay.cli.runners import jobs_of, publishes
from relay.errors import ConfigurationError
from relay.kernel.line_redaction import WITHHOLDING, Redaction
from relay.operate.doctor import Finding, Patient, Report, Status, doctor
from relay.postgres.connect import conninfo, place
from relay.settings import Settings, load
from relay.upkeep.jobs import OURS, Job


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    command = commands.add_parser(
        "doctor",
        help="check everything that publishing rests on",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Looks at the database, the outbox and the broker, as the role and the account
that the settings name, and changes nothing. Prints a line a check: ok, warn or
fail, and what to do. Exits 1 when a check fails; warnings alone exit 0.""",
        epilog="""\
examples:
  python -m relay doctor
  python -m relay doctor --json""",
    )
    command.add_argument("--json", action="store_true", help="print the findings as JSON")
    command.set_defaults(command=lambda options: asyncio.run(_doctor(options, load())))


async def _doctor(options: argparse.Namespace, settings: Settings) -> int:
    settings.require("database_url", *(["pubsub_project_id"] if publishes(settings) else []))
    redaction = _redaction(settings)
    report = await doctor(
        patient(settings), _keep if options.json else lambda finding: _show(_told(finding, redaction))
    )
    if options.json:
        told = tuple(_told(finding, redaction) for finding in report.findings)
        print(json.dumps(Report(told).as_json()))
    return 0 if report.passed else 1


def _told(finding: Finding, redaction: Redaction) -> Finding:
    """What others said, a server or a library, stands in what is not ok; the settings' faults are our words."""
    if finding.status is Status.OK or finding.check == "configuration":
        return finding
    known = {"check": finding.check, "found": finding.found}
    return replace(finding, found=redaction.fields("finding", known, {"found": "error"})["found"])


def _redaction(settings: Settings) -> Redaction:
    """A hook that cannot be had is a finding of its own; without it no text is shown that it might have redacted."""
    try:
        return warned(settings)
    except ConfigurationError:
        return WITHHOLDING


def patient(settings: Settings) -> Patient:
    """The relay that these settings describe. Raises ConfigurationError where one cannot be read."""
    return Patient(
        refusals=refusals(settings),
        database_url=settings.require_database(),
        app=settings.relay_name,
        schema=settings.relay_schema,
        topics=routes(settings).topics,
        publish_budget=settings.relay_publish_budget_ms,
        batch_end=settings.relay_idle_tx_ms,
        broker=pubsub_address(settings) if publishes(settings) else None,
        warnings=Settings.strangers(),
        listen=listening_opener(settings) if settings.relay_notify else None,
        listens_at=_listens_at(settings),
        jobs=_jobs(settings),
    )


def _jobs(settings: Settings) -> list[Job]:
    """Those of RELAY_APP, where this relay would run them; where they cannot be had, that is a refusal."""
    try:
        return [job for job in jobs_of(settings) if not job.name.startswith(OURS)]
    except ConfigurationError:
        return []


def _listens_at(settings: Settings) -> str:
    url = settings.relay_listen_url.get_secret_value() or settings.require_database()
    try:
        conninfo(url)
    except (ConfigurationError, psycopg.Error):
        return ""
    return place(url)


def _show(finding: Finding) -> None:
    print(finding, flush=True)


def _keep(_: Finding) -> None:
    """The report has it."""

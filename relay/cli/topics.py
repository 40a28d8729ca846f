"""`relay topics`: which topics events will go to, and creating those that are missing."""

import argparse
import asyncio
import json
import sys

from relay.brokers.pubsub_client import PubSubAddress
from relay.brokers.pubsub_topics import PubSubTopics, TopicState
from relay.cli.parts import outbox_connector, pubsub_address, routes
from relay.errors import BrokerError, ConfigurationError
from relay.outbox.statements import search_path, statement
from relay.routes import topic_fault
from relay.settings import Settings, load

SECONDS = 10.0
# Of the oldest pending rows, so many are asked which topics they name.
MOST_ROWS = 1_000
_SAID = {
    TopicState.UNSEEN: "unseen: this account may not look; grant it roles/pubsub.viewer, or see: topics ensure",
    TopicState.MISSING: "missing; create it with: python -m relay topics ensure",
}


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    command = commands.add_parser(
        "topics",
        help="show or create the topics that events go to",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
The topics of RELAY_TOPIC and RELAY_ROUTES, those that the oldest 1,000 pending
rows name where DATABASE_URL is set, and those of the command line. `plan` looks
at each and exits 1 unless all are there; `ensure` creates what is missing.""",
        epilog="""\
examples:
  python -m relay topics plan
  python -m relay topics ensure audit-trail --json""",
    )
    command.add_argument("action", choices=("plan", "ensure"), help="look, or create what is missing")
    command.add_argument("topics", nargs="*", metavar="TOPIC", help="one more, by its short or full name")
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.set_defaults(command=lambda options: asyncio.run(_topics(options, load())))


async def _topics(options: argparse.Namespace, settings: Settings) -> int:
    for name in options.topics:
        if fault := topic_fault(name):
            raise ConfigurationError(f"topic {name[:100]!r} {fault}")
    address = pubsub_address(settings)
    names = [*routes(settings).topics, *await _named_by_rows(settings), *options.topics]
    known, failed = await _each(address, list(dict.fromkeys(map(address.topic, names))), options.action)
    if options.json:
        print(json.dumps({"topics": [{"topic": name, "state": state.value} for name, state in known.items()]}))
    else:
        for name, state in known.items():
            print(f"{name} {_SAID.get(state, state.value)}")
    return 1 if failed or any(state in _SAID for state in known.values()) else 0


async def _each(address: PubSubAddress, names: list[str], action: str) -> tuple[dict[str, TopicState], bool]:
    """What is known of each topic; what the broker refused is said at once and spoils none of the others."""
    known, failed = {}, False
    async with PubSubTopics(address) as topics:
        ask = topics.look if action == "plan" else topics.ensure
        for name in names:
            try:
                known[name] = await ask(name, SECONDS)
            except BrokerError as error:
                failed = True
                hint = "; creating takes pubsub.topics.create" if error.code == "PERMISSION_DENIED" else ""
                print(f"relay: topic {name}: {error}{hint}", file=sys.stderr)
    return known, failed


async def _named_by_rows(settings: Settings) -> list[str]:
    """The topics that pending rows name; none where no database is configured."""
    if not settings.database_url.get_secret_value():
        return []
    async with await outbox_connector(settings)() as connection, connection.transaction():
        await connection.execute(statement("operate_enter"), {"search_path": search_path(settings.relay_schema)})
        rows = await (await connection.execute(statement("doctor_topics"), {"most": MOST_ROWS})).fetchall()
    return [row[0] for row in rows]

"""`relay topics`: which topics events will go to, and creating those that are missing."""

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence

from relay.brokers.pubsub_client import PubSubAddress
from relay.brokers.pubsub_topics import PubSubTopics, TopicState
from relay.cli.parts import outbox_connector, pubsub_address, routes
from relay.errors import BrokerError, ConfigurationError
from relay.kernel.failure import told
from relay.outbox.statements import search_path, statement
from relay.routes import topic_fault
from relay.settings import Settings, load

# For one question, and for all of them; so many are asked at once.
SECONDS = 10.0
ALL_SECONDS = 60.0
AT_ONCE = 8
# At either end of each kind of pending rows.
MOST_ROWS = 1_000
_SAID = {
    TopicState.UNSEEN: (
        "unseen: this account may not look; grant it roles/pubsub.viewer, or run: python -m relay topics ensure"
    ),
    TopicState.MISSING: "missing; create it with: python -m relay topics ensure",
}

# What is known of each topic, or why nothing is.
Answers = Mapping[str, TopicState | BrokerError]


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    command = commands.add_parser(
        "topics",
        help="show or create the topics that events go to",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
The topics of RELAY_TOPIC and RELAY_ROUTES, those of the command line, and those
that pending rows name where DATABASE_URL is set: of rows that are fresh, that
are scheduled or retried, and that are ordered, the first and the last 1,000 are
looked at. In a larger backlog, topics that stand between those are not found.

`plan` looks at each topic; it exits 1 unless all are there. `ensure` creates
what is missing; it exits 1 unless all are there now. Eight topics are asked at
once, for at most a minute in all.""",
        epilog="""\
examples:
  python -m relay topics plan
  python -m relay topics plan --json
  python -m relay topics ensure audit-trail projects/acme/topics/billing""",
    )
    command.add_argument("action", choices=("plan", "ensure"), help="look, or create what is missing")
    command.add_argument("topics", nargs="*", metavar="TOPIC", help="one more, by its short or full name")
    command.add_argument("--json", action="store_true", help="print one JSON object: topics, with state and error")
    command.set_defaults(command=lambda options: asyncio.run(_topics(options, load())))


async def _topics(options: argparse.Namespace, settings: Settings) -> int:
    for name in options.topics:
        if fault := topic_fault(name):
            raise ConfigurationError(f"topic {name[:100]!r} {fault}")
    address = pubsub_address(settings)
    names = [*routes(settings).topics, *await _named_by_rows(settings), *options.topics]
    answers = await _answers(address, list(dict.fromkeys(map(address.topic, names))), options.action)
    _tell(answers, as_json=options.json)
    return 0 if all(answer in {TopicState.EXISTS, TopicState.CREATED} for answer in answers.values()) else 1


async def _answers(address: PubSubAddress, names: Sequence[str], action: str) -> Answers:
    """Ask for each topic; what is refused of one spoils none of the others."""
    answers: dict[str, TopicState | BrokerError] = {}
    permits = asyncio.Semaphore(AT_ONCE)
    async with PubSubTopics(address) as topics:
        ask = topics.look if action == "plan" else topics.ensure

        async def answer(name: str) -> None:
            # Of a row, for those of the call and of the settings were checked. It may hold anything.
            if fault := topic_fault(name):
                answers[name] = BrokerError("INVALID_ARGUMENT", f"{fault}; pending rows name it")
                return
            async with permits:
                try:
                    answers[name] = await ask(name, SECONDS)
                except BrokerError as error:
                    answers[name] = error

        try:
            async with asyncio.timeout(ALL_SECONDS):
                await asyncio.gather(*map(answer, names))
        except TimeoutError:
            pass
    late = BrokerError("DEADLINE_EXCEEDED", f"nothing is known after {ALL_SECONDS:.0f} s; run the command again")
    return {name: answers.get(name, late) for name in names}


def _tell(answers: Answers, *, as_json: bool) -> None:
    """Print what is known, in the order in which it was asked; what went wrong is also told on stderr."""
    errors = {name: _words(answer) for name, answer in answers.items() if isinstance(answer, BrokerError)}
    for name, error in errors.items():
        print(f"relay: topic {_shown(name)}: {error}", file=sys.stderr)
    if as_json:
        topics = [
            {"topic": name, "state": "unknown" if name in errors else answer, "error": errors.get(name)}
            for name, answer in answers.items()
        ]
        print(json.dumps({"topics": topics}))
        return
    for name, answer in answers.items():
        if isinstance(answer, TopicState):
            print(f"{name} {_SAID.get(answer, answer.value)}")


def _words(error: BrokerError) -> str:
    hint = "; creating takes pubsub.topics.create" if error.code == "PERMISSION_DENIED" else ""
    return f"{told(error)}{hint}"


def _shown(name: str) -> str:
    return repr(name[:600]) if topic_fault(name) else name


async def _named_by_rows(settings: Settings) -> list[str]:
    """The topics that pending rows name; none where no database is configured."""
    if not settings.database_url.get_secret_value():
        return []
    async with await outbox_connector(settings)() as connection, connection.transaction():
        await connection.execute(statement("operate_enter"), {"search_path": search_path(settings.relay_schema)})
        rows = await (await connection.execute(statement("doctor_topics"), {"most": MOST_ROWS})).fetchall()
    return [row[0] for row in rows]

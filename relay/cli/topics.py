"""`relay topics`: which topics events will go to, and creating those that are missing."""

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, assert_never

from relay.brokers.pubsub_client import PubSubAddress
from relay.brokers.pubsub_topics import PubSubTopics, TopicState
from relay.cli.parts import loaded, outbox_connector, pubsub_address, routes, warned
from relay.envelope import topic_fault
from relay.errors import BrokerError, ConfigurationError
from relay.kernel.failure import told
from relay.kernel.line_redaction import Redaction
from relay.outbox.statements import statement
from relay.postgres.statements import search_path
from relay.settings import Settings

# For one question, and for all of them; so many are asked at once.
SECONDS = 10.0
ALL_SECONDS = 60.0
AT_ONCE = 8
# At either end of each kind of pending rows.
MOST_ROWS = 1_000
WRONG = 'see "Pending rows with a wrong topic" in docs/operate.md'

Action = Literal["plan", "ensure"]
# What is known of each topic, or why nothing is.
Answers = Mapping[str, TopicState | BrokerError]


class By(StrEnum):
    """Who names a topic."""

    SETTINGS = "settings"
    YOU = "you"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Named:
    """Who names each topic, by its full name. What rows alone name may be mistyped, and is not asked for."""

    by: Mapping[str, Sequence[By]]
    project: str
    pending: bool  # whether the topics of rows are asked for as well

    def wanted(self, name: str) -> bool:
        """Whether somebody asked for this topic to be there."""
        return self.pending or self.by[name] != [By.ROWS]

    def given(self, name: str) -> str:
        """How it is written on the command line."""
        return name.removeprefix(f"projects/{self.project}/topics/")


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command, and what it can do, to the command line."""
    command = commands.add_parser(
        "topics",
        help="show or create the topics that events go to",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
The topics of RELAY_TOPIC and RELAY_ROUTES, those of the command line, and those
that pending rows name where DATABASE_URL is set: of rows that are fresh, that
are scheduled or retried, and that are ordered, the first and the last 1,000 are
looked at. In a larger backlog, topics that stand between those are not found.

`plan` looks at each topic and says who names it; it exits 1 unless all are
there. `ensure` creates what is missing of the settings' topics and of those
that you name, and exits 1 unless they are there now. A topic that pending rows
alone name may be mistyped: it is shown, and created with --pending or when you
name it. Eight topics are asked at once, for at most a minute in all.""",
        epilog="""\
examples:
  python -m relay topics plan
  python -m relay topics plan --json
  python -m relay topics ensure audit-trail projects/acme/topics/billing
  python -m relay topics ensure --pending""",
    )
    actions = command.add_subparsers(title="what to do", metavar="ACTION", required=True, dest="action")
    _add_action(actions, "plan", "look at each topic, and change nothing", "plan --json")
    ensure = _add_action(actions, "ensure", "create the topics that are missing", "ensure audit-trail --pending")
    ensure.add_argument("--pending", action="store_true", help="create those that pending rows alone name, too")


def _add_action(actions: Any, name: Action, does: str, example: str) -> argparse.ArgumentParser:
    action: argparse.ArgumentParser = actions.add_parser(
        name,
        help=does,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"{does[0].upper()}{does[1:]}.",
        epilog=f"example:\n  python -m relay topics {example}",
    )
    action.add_argument("topics", nargs="*", metavar="TOPIC", help="one more, by its short or full name")
    action.add_argument(
        "--json", action="store_true", help="print one JSON object: topics, each with state, named_by and error"
    )
    action.set_defaults(pending=False, command=lambda options: asyncio.run(_topics(options, loaded())))
    return action


async def _topics(options: argparse.Namespace, settings: Settings) -> int:
    for name in options.topics:
        if fault := topic_fault(name):
            raise ConfigurationError(f"topic {name[:100]!r} {fault}")
    address = pubsub_address(settings)
    named = await _named(options, settings, address)
    answers = await _answers(address, named, options.action)
    errors = _errors(answers, warned(settings))
    _tell(answers, errors, named, as_json=options.json)
    # A plan is about all of them; `ensure` answers for what it was to create.
    judged = answers if options.action == "plan" else filter(named.wanted, answers)
    return 0 if all(answers[name] in {TopicState.EXISTS, TopicState.CREATED} for name in judged) else 1


async def _named(options: argparse.Namespace, settings: Settings, address: PubSubAddress) -> Named:
    by: dict[str, list[By]] = {}
    for who, names in (
        (By.SETTINGS, routes(settings).topics),
        (By.YOU, options.topics),
        (By.ROWS, await _named_by_rows(settings)),
    ):
        for name in dict.fromkeys(map(address.topic, names)):
            by.setdefault(name, []).append(who)
    return Named(by, address.project, options.pending)


async def _answers(address: PubSubAddress, named: Named, action: Action) -> Answers:
    """Ask for each topic; what is refused of one spoils none of the others."""
    answers: dict[str, TopicState | BrokerError] = {}
    permits = asyncio.Semaphore(AT_ONCE)
    async with PubSubTopics(address) as topics:

        async def answer(name: str) -> None:
            # Of a row, for those of the call and of the settings were checked. It may hold anything.
            if fault := topic_fault(name):
                answers[name] = BrokerError("INVALID_ARGUMENT", f"{fault}; pending rows name it, {WRONG}")
                return
            ask = _question(topics, action, wanted=named.wanted(name))
            async with permits:
                try:
                    answers[name] = await ask(name, SECONDS)
                except BrokerError as error:
                    answers[name] = error

        try:
            async with asyncio.timeout(ALL_SECONDS):
                await asyncio.gather(*map(answer, named.by))
        except TimeoutError:
            pass  # a topic without an answer is told of as late
    late = BrokerError("DEADLINE_EXCEEDED", f"nothing is known after {ALL_SECONDS:.0f} s; run the command again")
    return {name: answers.get(name, late) for name in named.by}


def _question(topics: PubSubTopics, action: Action, *, wanted: bool) -> Callable[[str, float], Awaitable[TopicState]]:
    match action:
        case "plan":
            return topics.look
        case "ensure":
            return topics.ensure if wanted else topics.look
        case _:
            assert_never(action)


def _tell(answers: Answers, errors: Mapping[str, str], named: Named, *, as_json: bool) -> None:
    """Print what is known, in the order in which it was asked; what went wrong is also told on stderr."""
    for name, error in errors.items():
        print(f"relay: topic {_shown(name)}: {error}", file=sys.stderr)
    if as_json:
        topics = [
            {
                "topic": name,
                "state": "unknown" if name in errors else answer,
                "named_by": named.by[name],
                "error": errors.get(name),
            }
            for name, answer in answers.items()
        ]
        print(json.dumps({"topics": topics}))
        return
    for name, answer in answers.items():
        if isinstance(answer, TopicState):
            print(f"{name} {answer}, {_who(named.by[name])}{_remedy(answer, name, named)}")


def _who(by: Sequence[By]) -> str:
    return "named by pending rows, by no setting" if by == [By.ROWS] else f"named by {', '.join(by)}"


def _remedy(state: TopicState, name: str, named: Named) -> str:
    by = named.by[name]
    ensure = "python -m relay topics ensure" + ("" if By.SETTINGS in by else f" {named.given(name)}")
    match state:
        case TopicState.EXISTS | TopicState.CREATED:
            return ""
        case TopicState.UNSEEN:
            return f"; this account may not look: grant it roles/pubsub.viewer, or run: {ensure}"
        case TopicState.MISSING if by == [By.ROWS]:
            return f"; if the name is right, create it with: {ensure}; if it is mistyped, {WRONG}"
        case TopicState.MISSING:
            return f"; create it with: {ensure}"
        case _:
            assert_never(state)


def _errors(answers: Answers, redaction: Redaction) -> dict[str, str]:
    """What went wrong, by topic."""
    return {name: _words(answer, redaction) for name, answer in answers.items() if isinstance(answer, BrokerError)}


def _words(error: BrokerError, redaction: Redaction) -> str:
    hint = "; creating takes pubsub.topics.create" if error.code == "PERMISSION_DENIED" else ""
    return f"{redaction.words('command_failed', code=error.code, error=told(error)).error}{hint}"


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

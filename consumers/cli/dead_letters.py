"""`consumers dead-letters create | list | replay`: what to do about events that failed for good."""

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, closing
from datetime import timedelta
from typing import Any
from uuid import UUID

from consumers.backstage import redis_of
from consumers.cli import dead_letter_words as words
from consumers.cli.loading import load_consumers
from consumers.cli.parts import loaded_settings, warned
from consumers.dead_letter import Choice, DeadLetter
from consumers.forgetting import Memory, NoMemory, StoreMemory
from consumers.replay import End, Means, replay
from consumers.settings import Settings
from consumers.sources.pubsub_dead_letter_box import PubSubDeadLetterBox
from consumers.sources.pubsub_dead_letter_topic import ensure
from consumers.sources.pubsub_origins import PubSubOrigins
from consumers.sources.source import Origin
from idempotency import Manager
from relay.brokers.pubsub import PubSub
from relay.brokers.pubsub_client import PubSubAddress
from relay.brokers.pubsub_subscriptions import PubSubSubscriptions
from relay.envelope import topic_fault
from relay.errors import ConfigurationError
from relay.kernel.duration import parse, written
from relay.kernel.line_redaction import Redaction
from relay.kernel.progress import Progress
from relay.patterns import pattern_fault

# What Pub/Sub allows a subscription.
SHORTEST, LONGEST = timedelta(minutes=10), timedelta(days=31)
MOST_LISTED = 100

_Work = Callable[[argparse.Namespace, Settings], Coroutine[Any, Any, int]]


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command, and what it can do, to the command line."""
    command = commands.add_parser(
        "dead-letters",
        help="list and replay events that failed for good; create the topics for them",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
What to do about events that consumers gave up. They lie on the subscription of
a dead-letter topic, as they were, with the reason beside them. A replay sends
them to where they came from, for the consumer that failed and for no other, and
only then takes them off: killed halfway, it loses none.""",
        epilog="""\
examples:
  python -m consumers dead-letters create shop.billing:consumer
  python -m consumers dead-letters list --from billing-dead-letters
  python -m consumers dead-letters replay --from billing-dead-letters --limit 1
  python -m consumers dead-letters replay --from billing-dead-letters""",
    )
    kinds = command.add_subparsers(title="what to do", metavar="ACTION", required=True)

    create = _kind(kinds, "create", _CREATE, _create, "shop.billing:consumer --retention 14d")
    create.add_argument("names", nargs="+", metavar="MODULE:NAME", help="a consumer, as it is named for `run`")
    create.add_argument(
        "--retention",
        type=_retention,
        default=LONGEST,
        metavar="TIME",
        help="how long a dead letter is kept; 10m to 31d. 31d",
    )
    create.add_argument("--json", action="store_true", help="one JSON object a line, for each consumer")

    listed = _kind(kinds, "list", _LIST, _list, "--from shop-dead-letters --code GONE")
    _add_reading(listed)
    listed.add_argument("--limit", type=_count, metavar="N", help=f"end after so many. {MOST_LISTED}; with --json, all")
    listed.add_argument("--json", action="store_true", help="one JSON object a line, for each dead letter")

    replayed = _kind(kinds, "replay", _REPLAY, _replay, "--from shop-dead-letters --code GONE")
    _add_reading(replayed)
    replayed.add_argument("--limit", type=_count, metavar="N", help="no more than so many, those first stored first")
    replayed.add_argument(
        "--to", type=_topic, metavar="TOPIC", help="publish there. The topic of the subscription where it failed"
    )
    replayed.add_argument(
        "--without-store",
        action="store_true",
        help="no event is known as processed: all consumers here have dedup='none'",
    )
    replayed.add_argument(
        "--json", action="store_true", help="one JSON object a line, for each that was to be replayed"
    )


_CREATE = """\
create a consumer's dead-letter topic, and a subscription that keeps what comes

The subscription has the name of the topic, and never expires. What is there
already is not changed, and told of where it would lose dead letters."""

_LIST = """\
show the dead letters of a subscription, and leave them there

Beside another `list` or `replay` of the subscription, either sees a part. What
was read is held until the end and then given back; after a kill it comes again
within a minute."""

_REPLAY = """\
send dead letters to their consumer again, and take them off the subscription

All that match are replayed; with an ordering key, in the order in which their
events were stored. `list` takes the same options, to look first. What is no
event (--code UNDECODABLE), and what no consumer of this SDK has sent (--code
FOREIGN: for every consumer of the topic), is replayed only when named so.

One that fails is told of and stays, those behind it in its key as well, and the
exit code is 1. REDIS_URL has to be the consumer's: there the event is known as
processed, and a replay makes it forgotten first."""


def _kind(kinds: Any, name: str, does: str, work: _Work, example: str) -> argparse.ArgumentParser:
    line, _, more = does.partition("\n\n")
    kind: argparse.ArgumentParser = kinds.add_parser(
        name,
        help=line,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"{line[0].upper()}{line[1:]}.\n\n{more}",
        epilog=f"example:\n  python -m consumers dead-letters {name} {example}",
    )
    kind.allow_abbrev = False
    kind.set_defaults(command=lambda options: asyncio.run(work(options, loaded_settings())))
    return kind


def _add_reading(kind: argparse.ArgumentParser) -> None:
    kind.add_argument("--from", dest="source", required=True, metavar="SUBSCRIPTION", help="where dead letters lie")
    kind.add_argument(
        "--quiet",
        type=_duration,
        default=timedelta(seconds=5),
        metavar="TIME",
        help="it is at its end after so long without one. 5s",
    )
    group = kind.add_argument_group("which dead letters, all of these together")
    group.add_argument("--consumer", metavar="NAME", help="whose")
    group.add_argument(
        "--event-type", action="append", type=_pattern, metavar="PATTERN", help="order.paid or order.*; repeatable"
    )
    group.add_argument("--event-id", action="append", type=_event_id, metavar="ID", help="repeatable")
    group.add_argument("--code", action="append", metavar="CODE", help="what they failed of, as listed; repeatable")


async def _create(options: argparse.Namespace, settings: Settings) -> int:
    address = _address(settings)
    fine = True
    consumers = load_consumers(options.names)
    if without := [consumer.name for consumer in consumers if consumer.source is Origin.OUTBOX]:
        raise ConfigurationError(
            f"{', '.join(without)}: with source='outbox' what fails for good stays in the inbox, and there is no topic "
            "for it; leave it out"
        )
    for consumer in consumers:
        done = await ensure(address, consumer.dead_letter_topic, options.retention)
        fine = fine and done.fault is None
        if options.json:
            print(json.dumps(words.ensured_as_json(consumer.name, done)))
        else:
            print("\n".join(words.ensured(consumer.name, done)))
        for sentence in filter(None, [done.fault, *done.notes]):
            print(f"consumers: {consumer.name}: {sentence}", file=sys.stderr)
    return 0 if fine else 1


async def _list(options: argparse.Namespace, settings: Settings) -> int:
    choice, read = _choice(options), 0
    limit = options.limit or (None if options.json else MOST_LISTED)
    found: list[DeadLetter] = []
    count = 0
    redaction = warned(settings)
    box = PubSubDeadLetterBox(_address(settings), options.source, options.quiet.total_seconds())
    with closing(Progress()) as progress:
        async with box, aclosing(box.read()) as messages:
            async for message in messages:
                read += 1
                letter = DeadLetter.read(message.message_id, message.attributes, message.body)
                if choice.takes(letter):
                    count += 1
                    letter = words.redacted(letter, redaction)
                    if options.json:
                        print(json.dumps(letter.as_json()), flush=True)
                    else:
                        found.append(letter)
                progress("dead letters read", read)
                if count == limit:
                    break
    for line in words.table(found):
        print(line)
    print(words.listed(count, read, limit, narrowed=choice.narrows), file=sys.stderr)
    return 0


async def _replay(options: argparse.Namespace, settings: Settings) -> int:
    choice, address, redaction = _choice(options), _address(settings), warned(settings)
    async with AsyncExitStack() as stack:
        memory = await stack.enter_async_context(_memory(settings, without_store=options.without_store))
        broker = PubSub(address)
        stack.push_async_callback(broker.close)
        subscriptions = await stack.enter_async_context(PubSubSubscriptions(address))
        box = await stack.enter_async_context(
            PubSubDeadLetterBox(address, options.source, options.quiet.total_seconds())
        )
        means = Means(
            box=box,
            broker=broker,
            topics=PubSubOrigins(subscriptions, options.to),
            memory=memory,
            tell=lambda end: _tell(end, redaction, as_json=options.json),
            progress=stack.enter_context(closing(Progress())),
        )
        tally = await replay(means, choice, options.limit)
    for line in words.replayed(tally):
        print(line, file=sys.stderr if options.json else sys.stdout)
    return 1 if tally.failed or tally.held_back else 0


def _tell(end: End, redaction: Redaction, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(words.end_as_json(end, redaction)), flush=True)
    if sentence := words.end(end, redaction):
        print(f"consumers: {sentence}", file=sys.stderr)


@asynccontextmanager
async def _memory(settings: Settings, *, without_store: bool) -> AsyncIterator[Memory]:
    if without_store:
        yield NoMemory()
        return
    redis = redis_of(settings)
    if redis is None:
        raise ConfigurationError(
            "REDIS_URL is not set: there the events are known as processed, and what is not forgotten there is not "
            "acted on again; give the consumer's, or, where it has dedup='none', --without-store"
        )
    try:
        yield StoreMemory(Manager(redis, settings.store))
    finally:
        await redis.aclose()


def _address(settings: Settings) -> PubSubAddress:
    return PubSubAddress(**settings.address())


def _choice(options: argparse.Namespace) -> Choice:
    return Choice(
        consumer=options.consumer,
        event_types=tuple(options.event_type or ()),
        event_ids=frozenset(options.event_id or ()),
        codes=frozenset(options.code or ()),
    )


def _pattern(text: str) -> str:
    if fault := pattern_fault(text, "leave --event-type out"):
        raise argparse.ArgumentTypeError(f"{text[:100]!r}: {fault}")
    return text


def _event_id(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        return text  # of what is no event, it may be anything


def _topic(text: str) -> str:
    if fault := topic_fault(text):
        raise argparse.ArgumentTypeError(f"{text[:100]!r} {fault}")
    return text


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def _duration(text: str) -> timedelta:
    try:
        found = parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no time at all")
    return found


def _retention(text: str) -> timedelta:
    found = _duration(text)
    if not SHORTEST <= found <= LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is outside of {written(SHORTEST)} to {written(LONGEST)}")
    return found

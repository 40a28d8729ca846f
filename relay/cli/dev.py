"""`relay dev`: Postgres, Redis and a Pub/Sub emulator, ready to be worked with."""

import argparse

from relay.cli.parts import loaded


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    command = commands.add_parser(
        "dev",
        help="Postgres, Redis and a Pub/Sub emulator, until Ctrl-C",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Starts the embedded stack with the outbox, its topic and a subscription of the
same name, prints the environment, and removes everything at the end. With a
command, runs it in that environment instead.""",
        epilog="""\
examples:
  python -m relay dev
  python -m relay dev -- python -m relay run""",
    )
    command.add_argument("arguments", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what to run in it")
    command.set_defaults(command=_dev)


def _dev(options: argparse.Namespace) -> int:
    # Imported here: the dyno that publishes has none of the stack's packages.
    from relay.dev.command import dev  # noqa: PLC0415 -- see above
    from relay.dev.prepare import prepare  # noqa: PLC0415 -- see above

    settings = loaded()
    arguments = options.arguments[1:] if options.arguments[:1] == ["--"] else options.arguments
    topic = settings.relay_topic
    return dev(arguments, prepare=lambda stack: prepare(stack, settings.relay_schema, topic, topic), topic=topic)

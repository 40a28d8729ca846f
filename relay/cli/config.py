"""`relay config`: every setting, where its value comes from, and what is wrong with it."""

import argparse
from contextlib import suppress

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relay import setting_lines
from relay.cli.refusals import refusals
from relay.cli.runners import RUNNERS, publishes, unknown, without_jobs
from relay.errors import ConfigurationError
from relay.failed_head import FailedHead
from relay.setting_lines import MASK
from relay.settings import Settings, load

# The parts of a connection string that are no secret; all others are masked.
_SHOWN = {"host", "hostaddr", "port", "dbname", "user", "sslmode", "application_name", "connect_timeout"}


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    command = commands.add_parser(
        "config",
        help="show every setting, its source, and what is wrong",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Prints each setting with its value, where that comes from, its default and what
it does. Secrets are masked. Exits 2 when something is wrong, and says what; a
setting that is only missing is named and exits 0. Nothing is connected to.""",
        epilog="examples:\n  python -m relay config\n  python -m relay config --json",
    )
    command.add_argument("--json", action="store_true", help="print settings, warnings and faults as JSON")
    command.set_defaults(command=_config)


def table() -> str:
    """The reference of all settings, as Markdown."""
    return setting_lines.table(Settings)


def _config(options: argparse.Namespace) -> int:
    faults, warnings = _judged()
    masks = {"database_url": _masked_url, "relay_listen_url": _masked_url}
    lines = list(setting_lines.lines(Settings, masks, {"relay_on_failed_head": _meaning}))
    return setting_lines.show("relay", lines, warnings, faults, as_json=options.json)


def _judged() -> tuple[list[str], list[str]]:
    """What is wrong, and what may be."""
    warnings = Settings.strangers()
    try:
        settings = load()
    except ConfigurationError as error:
        return str(error).splitlines(), warnings
    warnings += unknown(settings, RUNNERS)
    for name in ("database_url", "pubsub_project_id") if publishes(settings) else ("database_url",):
        try:
            settings.require(name)
        except ConfigurationError as error:
            warnings.append(str(error))
    faults = refusals(settings)
    return faults, warnings if faults else warnings + without_jobs(settings)


def _meaning(given: str) -> str:
    with suppress(ValueError):  # what cannot be read is a fault, and means nothing
        return FailedHead.parse(given).meaning
    return ""


def _masked_url(url: str) -> str:
    try:
        parts = conninfo_to_dict(url)
    except ProgrammingError:
        return MASK
    # A password with a special character in it is cut there, and its rest is taken for a host, a port or a name.
    cut = "@" in f"{parts.get('host')}{parts.get('dbname')}" or not str(parts.get("port") or 0).isdecimal()
    if cut:
        return MASK
    return make_conninfo("", **{name: value if name in _SHOWN else MASK for name, value in parts.items()})

"""`consumers config`: every setting, where its value comes from, and what is wrong with it."""

import argparse
from urllib.parse import urlsplit

from consumers.backstage import missing, refusals
from consumers.errors import ConfigurationError
from consumers.settings import Settings, load
from relay import setting_lines
from relay.kernel.loading import look_here
from relay.setting_lines import MASK


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
        epilog="examples:\n  python -m consumers config\n  python -m consumers config --json",
    )
    command.add_argument("--json", action="store_true", help="print settings, warnings and faults as JSON")
    command.set_defaults(command=_config)


def table() -> str:
    """The reference of all settings, as Markdown."""
    return setting_lines.table(Settings)


def _config(options: argparse.Namespace) -> int:
    look_here()
    warnings = Settings.strangers()
    faults: list[str] = []
    try:
        settings = load()
    except ConfigurationError as error:
        faults = str(error).splitlines()
    else:
        faults = refusals(settings)
        warnings += missing(settings, ())
        if not settings.redis_url.get_secret_value():
            warnings.append(Settings.MISSING["redis_url"])
    lines = list(setting_lines.lines(Settings, {"redis_url": _masked, "database_url": _masked}))
    return setting_lines.show("consumers", lines, warnings, faults, as_json=options.json)


def _masked(url: str) -> str:
    """The URL without what is before its hosts; all of it where they cannot be told from a password."""
    try:
        parts = urlsplit(url)
        _ = parts.port if "," not in parts.netloc else None
    except ValueError:
        return MASK
    if not parts.hostname or parts.query or parts.fragment or "@" in parts.path or parts.netloc.count("@") > 1:
        return MASK
    user, at, hosts = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{MASK if user else ''}{at}{hosts}{parts.path}"

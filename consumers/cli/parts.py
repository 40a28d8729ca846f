"""What several commands do with the settings."""

import sys

from consumers.settings import Settings, load


def loaded_settings() -> Settings:
    """The settings of this call; names that look like settings and are none are told of first."""
    for warning in Settings.strangers():
        print(f"consumers: warning: {warning}", file=sys.stderr)
    return load()

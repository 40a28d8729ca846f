"""What several commands do with the settings."""

import sys
from typing import Any

from consumers.backstage import redaction
from consumers.settings import Settings, load
from relay.kernel.line_redaction import Redaction


def loaded_settings() -> Settings:
    """The settings of this call; names that look like settings and are none are told of first."""
    for warning in Settings.strangers():
        print(f"consumers: warning: {warning}", file=sys.stderr)
    return load()


def warned(settings: Settings) -> Redaction:
    """The user's own hook, for what a command shows; where it fails, that is said on stderr."""

    def complain(line: dict[str, Any]) -> None:
        print(
            f"consumers: warning: the hook of CONSUMERS_LOG_REDACT failed ({line['code']}): texts are left out",
            file=sys.stderr,
        )

    return Redaction(redaction(settings), complain)

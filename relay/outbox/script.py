"""The outbox's steps as SQL for other tools: one statement each, all of it or nothing."""

from relay.outbox.ladder import OUTBOX
from relay.postgres.script import Script, complaint

__all__ = ["between", "complaint", "down", "one_up", "up", "version_table"]

_SCRIPT = Script(OUTBOX)

between = _SCRIPT.between
up = _SCRIPT.up
one_up = _SCRIPT.one_up
down = _SCRIPT.down
version_table = _SCRIPT.version_table

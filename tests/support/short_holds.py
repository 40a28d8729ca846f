"""`consumers` as a process of which what it held is forgotten a second after it was killed."""

from consumers.__main__ import main as consumers
from consumers.sources import pubsub_dead_letter_box as box


def main() -> int:
    """Run it."""
    box._HOLD_SECONDS, box._RENEW_SECONDS = 1, 0.25
    return consumers()

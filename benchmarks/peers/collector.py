"""The garbage collector, spared as the relay spares it: whoever runs a peer in Python can do the same."""

import gc


def spare_the_collector() -> None:
    """Look for garbage in what the process works with, and not again and again in all that it has imported."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)

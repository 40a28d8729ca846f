"""`python -m relay`."""

import signal
import sys

# As process 1 of a container there is no default action: a SIGTERM before a command listens for it would be lost.
signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))

from relay.cli import main  # noqa: E402 -- importing takes long enough to be asked to stop meanwhile

sys.exit(main())

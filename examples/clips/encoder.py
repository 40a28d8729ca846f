"""A stand-in for ffmpeg: `encoder.py SOURCE CLIP` writes frame by frame, and says how far it is, in percent."""

import hashlib
import signal
import sys
import time
from pathlib import Path

FRAME_BYTES = 1024
FRAME_SECONDS = 0.05


def main(source: Path, clip: Path) -> int:
    """Exit 2 where the source is no film."""
    film = source.read_bytes()
    starts = range(0, len(film), FRAME_BYTES)
    if not starts:
        print(f"{source.name} is empty", file=sys.stderr)
        return 2
    with clip.open("wb") as written:
        for number, start in enumerate(starts, 1):
            written.write(hashlib.sha256(film[start : start + FRAME_BYTES]).digest() * 1024)
            time.sleep(FRAME_SECONDS)
            print(100 * number / len(starts), flush=True)
    return 0


if __name__ == "__main__":
    # Where nobody reads what it says, for they were killed, it ends as well.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))

"""The content of a Google key or federation file: out of a variable, or out of a file."""

import base64
import json
from pathlib import Path
from typing import Any

from relay.errors import ConfigurationError


def key_of_text(text: str) -> dict[str, Any]:
    """Read JSON or its base64. Raises ValueError, whose sentence shows nothing of the text."""
    try:
        # Not strict: a `.env` file in double quotes turns the \n of a private key into line breaks.
        key = json.loads(text if text.startswith("{") else _from_base64(text), strict=False)
    except ValueError:
        key = None
    if isinstance(key, dict):
        return key
    # Said here: the parsers' own sentences repeat parts of the key.
    raise ValueError(
        "is neither a key file's JSON nor its base64; set it to the content of the file, or to what "
        "`base64 < key.json` prints"
    )


def key_of_file(path: str) -> dict[str, Any]:
    """Read the file that GOOGLE_APPLICATION_CREDENTIALS names. Raises ConfigurationError, which shows none of it."""
    try:
        key = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"GOOGLE_APPLICATION_CREDENTIALS names {path!r}, which cannot be read: {error.strerror}; "
            "name a file that is there, or use GOOGLE_CREDENTIALS_JSON"
        ) from None
    except ValueError:
        key = None
    if isinstance(key, dict):
        return key
    raise ConfigurationError(
        f"GOOGLE_APPLICATION_CREDENTIALS names {path!r}, which is no JSON object; "
        "name a key or federation file, unchanged"
    )


def _from_base64(text: str) -> bytes:
    """Decode either alphabet, in one line or many, padded or not."""
    one_line = "".join(text.split()).translate(str.maketrans("-_", "+/")).rstrip("=")
    return base64.b64decode(one_line + "=" * (-len(one_line) % 4), validate=True)

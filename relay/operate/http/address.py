"""Where to listen, as the settings and the platform say it."""

from typing import NamedTuple

from relay.errors import ConfigurationError

LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"  # noqa: S104 -- a web dyno is reached from outside; a token is demanded there
_HIGHEST_PORT = 65_535
_OFF = {"", "off"}
_LEAST_TOKEN = 16


class Address(NamedTuple):
    """A host and a port to listen on, and the token to be shown there, if any."""

    host: str
    port: int
    token: str | None


def http_address(setting: str, token: str, port: str = "", dyno: str = "") -> Address | None:
    """What RELAY_HTTP and RELAY_HTTP_TOKEN ask for, or None where HTTP is off.

    On a web dyno the platform names the port, and RELAY_HTTP may be left out. Raises ConfigurationError.
    """
    shown = _checked(token) if token else None
    setting = setting.strip()
    if setting.lower() in _OFF:
        on_web = not setting and dyno.startswith("web.") and port
        return Address(EVERYWHERE, _port(port, "PORT"), shown) if on_web else None
    host, colon, number = setting.rpartition(":")
    if not colon:
        return Address(LOOPBACK, _port(setting, "RELAY_HTTP"), shown)
    bare = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not bare or ("[" not in host and ":" in host):
        raise ConfigurationError(
            f"RELAY_HTTP is {setting!r}: write a port, such as 8080, or host:port, such as 0.0.0.0:8080 or [::]:8080"
        )
    return Address(bare, _port(number, "RELAY_HTTP"), shown)


def _port(text: str, name: str) -> int:
    if text.isascii() and text.isdecimal() and int(text) <= _HIGHEST_PORT:
        return int(text)
    raise ConfigurationError(f"{name} is {text!r}: a port is a number from 0, any that is free, to {_HIGHEST_PORT}")


def _checked(token: str) -> str:
    # Not repeated in the sentences: it is a secret.
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError("RELAY_HTTP_TOKEN must be printable ASCII without spaces; a header carries no other")
    if len(token) < _LEAST_TOKEN:
        raise ConfigurationError(
            f"RELAY_HTTP_TOKEN is shorter than {_LEAST_TOKEN} characters and could be guessed; "
            "make one with: openssl rand -hex 32"
        )
    return token

"""Where to listen, as the settings and the platform say it."""

import ipaddress
import socket
from collections.abc import Iterable
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
        return _guarded(Address(EVERYWHERE, _port(port, "PORT"), shown), f"PORT of {dyno}") if on_web else None
    host, colon, number = setting.rpartition(":")
    if not colon:
        return Address(LOOPBACK, _port(setting, "RELAY_HTTP", setting), shown)
    bare = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not bare or ("[" not in host and ":" in host):
        raise ConfigurationError(
            f"RELAY_HTTP is {setting!r}: write a port, such as 8080, or host:port, such as 0.0.0.0:8080 or [::]:8080"
        )
    return _guarded(Address(bare, _port(number, "RELAY_HTTP", setting), shown))


def outside(addresses: Iterable[str]) -> str | None:
    """The first of these addresses that other machines reach; None where there is none."""
    bare = (address.partition("%")[0] for address in addresses)
    return next((address for address in bare if not ipaddress.ip_address(address).is_loopback), None)


def unguarded(address: str, name: str = "RELAY_HTTP") -> ConfigurationError:
    """What to do about an address that others reach while no token is asked for."""
    return ConfigurationError(
        f"{name} is reached from other machines on {address}; set RELAY_HTTP_TOKEN, which is then asked for, "
        f"or {'listen on 127.0.0.1' if name == 'RELAY_HTTP' else 'set RELAY_HTTP=off'}"
    )


def resolved(address: Address) -> Address:
    """The address, whose host's name is looked up. Raises ConfigurationError where others reach it without a token.

    A name that cannot be looked up now is left to whoever listens on it.
    """
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return address
    reached = outside(str(sockaddr[0]) for *_, sockaddr in found)
    if reached and not address.token:
        raise unguarded(reached)
    return address


def _guarded(address: Address, name: str = "RELAY_HTTP") -> Address:
    try:
        reached = outside([address.host])
    except ValueError:
        return address  # a name: what it stands for is known when it is listened on
    if reached and not address.token:
        raise unguarded(reached, name)
    return address


def _port(text: str, name: str, whole: str = "") -> int:
    if text.isascii() and text.isdecimal() and int(text) <= _HIGHEST_PORT:
        return int(text)
    raise ConfigurationError(
        f"{name} is {(whole or text)!r}: a port is a number from 0, any that is free, to {_HIGHEST_PORT}"
    )


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

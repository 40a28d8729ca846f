"""Where to listen, from what the settings and the platform say."""

import socket
from typing import Any

import pytest

from relay.errors import ConfigurationError
from relay.operate.http.address import Address, http_address, resolved

TOKEN = "0123456789abcdef"  # noqa: S105 -- a test's own


@pytest.mark.parametrize(
    ("setting", "port", "dyno", "expected"),
    [
        ("", "", "", None),
        ("off", "5000", "web.1", None),
        ("", "5000", "relay.1", None),
        ("", "5000", "", None),
        ("", "5000", "web.1", ("0.0.0.0", 5000)),  # noqa: S104 -- what a web dyno needs
        ("8080", "5000", "web.1", ("127.0.0.1", 8080)),
        ("0", "", "", ("127.0.0.1", 0)),
        ("0.0.0.0:8080", "", "", ("0.0.0.0", 8080)),  # noqa: S104 -- to be read
        ("[::]:8080", "", "", ("::", 8080)),
        ("localhost:8080", "", "", ("localhost", 8080)),
    ],
)
def test_off_unless_asked_for(setting: str, port: str, dyno: str, expected: tuple[str, int] | None) -> None:
    """By the setting, or by the platform on a web dyno."""
    assert http_address(setting, TOKEN, port, dyno) == (Address(*expected, TOKEN) if expected else None)


def test_no_token_is_none() -> None:
    """On loopback that will do."""
    assert http_address("8080", "") == Address("127.0.0.1", 8080, None)


@pytest.mark.parametrize("setting", ["x", "70000", "-1", ":8080", "host:", "host:x", "::1:8080", "[]:80", "\u0663"])
def test_what_is_no_address_is_refused_with_its_value(setting: str) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigurationError, match="RELAY_HTTP is "):
        http_address(setting, "")


def test_the_platforms_port_is_refused_by_its_own_name() -> None:
    """It was not RELAY_HTTP."""
    with pytest.raises(ConfigurationError, match="PORT is 'x'"):
        http_address("", "", "x", "web.1")


@pytest.mark.parametrize("token", ["hunter2", "0123456789abcde\u00e9", "0123456789 abcdef", "0123456789abcdef\n"])
def test_a_token_that_is_none_is_refused_and_not_repeated(token: str) -> None:
    """Whether HTTP is on or not."""
    with pytest.raises(ConfigurationError, match="RELAY_HTTP_TOKEN") as caught:
        http_address("", token)
    assert token.strip() not in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "port", "dyno", "words"),
    [
        ("0.0.0.0:8080", "", "", "^RELAY_HTTP is reached from other machines on 0.0.0.0; .* or listen on 127.0.0.1$"),
        ("[::]:8080", "", "", "^RELAY_HTTP is reached from other machines on ::;"),
        ("10.0.0.7:8080", "", "", "^RELAY_HTTP is reached from other machines on 10.0.0.7;"),
        ("", "5000", "web.1", "^PORT of web.1 is reached .*; set RELAY_HTTP_TOKEN, .*, or set RELAY_HTTP=off$"),
    ],
)
def test_leaving_this_machine_takes_a_token(setting: str, port: str, dyno: str, words: str) -> None:
    """It is known from the address alone; the sentence names what was set, and the ways out."""
    with pytest.raises(ConfigurationError, match=words):
        http_address(setting, "", port, dyno)
    assert http_address(setting, TOKEN, port, dyno)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "[::1]", "localhost"])
def test_loopback_takes_none(host: str) -> None:
    """Nobody else reaches it."""
    address = http_address(f"{host}:0", "")
    assert address
    assert resolved(address) == address


def test_a_name_that_others_reach_takes_a_token_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that nobody knows is left to whoever listens on it."""

    def look_up(host: str, *_: Any, **__: Any) -> list[Any]:
        if host == "nobody":
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1%eth0", 1, 0, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(ConfigurationError, match="on fe80::1; set RELAY_HTTP_TOKEN"):
        resolved(Address("relay.internal", 1, None))
    assert resolved(Address("relay.internal", 1, TOKEN)).token == TOKEN
    assert resolved(Address("nobody", 1, None)).token is None

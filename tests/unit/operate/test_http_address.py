"""Where to listen, from what the settings and the platform say."""

import pytest

from relay.errors import ConfigurationError
from relay.operate.http.address import Address, http_address

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

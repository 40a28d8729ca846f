"""What a connection string becomes before anything is connected to."""

import pytest
from psycopg.conninfo import conninfo_to_dict

from relay.errors import ConfigurationError
from relay.postgres.connect import conninfo

URL = "postgresql://u@h/db"


@pytest.mark.parametrize(
    ("url", "app", "name"),
    [
        (URL, "", "outbox-relay"),
        (f"{URL}?application_name=shop", "", "shop"),
        (URL, "relay-eu", "relay-eu"),
        (f"{URL}?application_name=shop", "relay eu", "relay eu"),
        ("host=h application_name=shop", "it's", "it's"),
    ],
)
def test_a_connection_is_named_after_its_relay(url: str, app: str, name: str) -> None:
    """RELAY_NAME goes over a DATABASE_URL that several processes have in common."""
    assert conninfo_to_dict(conninfo(url, app))["application_name"] == name


def test_a_peer_that_vanishes_is_noticed_unless_the_url_says_otherwise() -> None:
    """Each setting of its own goes over ours."""
    parts = conninfo_to_dict(conninfo(f"{URL}?connect_timeout=3"))
    assert (parts["connect_timeout"], parts["keepalives"], parts["tcp_user_timeout"]) == ("3", "1", "15000")
    assert parts["client_encoding"] == "utf8"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://u:hunter2@x@h/db", "percent-encode"),
        ("postgresql://u:hunter2/x@h/db", "cannot be read"),
        ("postgresql://h:70000/db", "its port is not a number from 1 to 65535"),
        ("postgresql://h:0/db", "its port is not a number from 1 to 65535"),
    ],
)
def test_a_url_that_was_cut_is_refused_without_its_parts(url: str, words: str) -> None:
    """They may be the rest of a password."""
    with pytest.raises(ConfigurationError, match=words) as refusal:
        conninfo(url)
    assert "hunter2" not in str(refusal.value)

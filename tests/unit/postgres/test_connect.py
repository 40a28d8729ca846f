"""What a connection string becomes before anything is connected to, and what is left of a connection given up."""

import asyncio

import pytest
from psycopg.conninfo import conninfo_to_dict

from relay.errors import ConfigurationError
from relay.postgres.connect import connect_async, conninfo
from tests.support.streams import answered

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


async def test_a_connection_that_is_given_up_is_closed_at_once() -> None:
    """Also while somebody remembers how that ended: a server waits a minute for who does not say who it is."""
    came, gone = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        came.set()
        while await reader.read(1_000):
            pass
        gone.set()

    async with answered(silent) as port:
        connecting = asyncio.create_task(connect_async(f"postgresql://shop@127.0.0.1:{port}/shop"))
        await came.wait()
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError) as remembered:
            await connecting
        await asyncio.wait_for(gone.wait(), 10)
    assert remembered.value.__traceback__ is not None

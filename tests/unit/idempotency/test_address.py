"""Where a URL leads, and what is said of one that leads nowhere."""

import pytest

from idempotency import InvalidUrlError
from idempotency.address import Address, Kind, parse

SERVER, CLUSTER, SENTINEL = Kind
ADDRESSES = {
    "redis://localhost": Address(SERVER, (("localhost", 6379),)),
    " redis://localhost:6380/2 ": Address(SERVER, (("localhost", 6380),), database=2),
    "rediss://:s%2Fcret%40@[::1]:6380": Address(SERVER, (("::1", 6380),), password="s/cret@", tls=True),  # noqa: S106 -- to be taken apart
    "redis://app:pw@h/0": Address(SERVER, (("h", 6379),), username="app", password="pw"),  # noqa: S106 -- the same
    "redis+cluster://a:1,b:2,c": Address(CLUSTER, (("a", 1), ("b", 2), ("c", 6379))),
    "rediss+cluster://:pw@a/0": Address(CLUSTER, (("a", 6379),), password="pw", tls=True),  # noqa: S106 -- the same
    "redis+sentinel://a,b:5/mymaster": Address(SENTINEL, (("a", 26379), ("b", 5)), master="mymaster"),
    "rediss+sentinel://u@a/m/3": Address(SENTINEL, (("a", 26379),), tls=True, username="u", database=3, master="m"),
}

SECRET = "hunter2"  # noqa: S105 -- to be looked for
REFUSED = {
    "": "empty",
    "localhost:6379": "scheme",
    f"http://:{SECRET}@h": "scheme",
    f"redis+foo://:{SECRET}@h": "scheme",
    f"redis+://:{SECRET}@h": "scheme",
    f"redis://:{SECRET}@": "host",
    f"redis://:{SECRET}@h:port": "port",
    f"redis://:{SECRET}@h:70000": "port",
    f"redis://:{SECRET}@h:0": "port",
    f"redis://:{SECRET}@[::1": "brackets",
    f"redis://:{SECRET}/more@h:6379": "port",
    f"redis://:{SECRET}#more@h:6379": "fragment",
    f"redis://:{SECRET}?more@h:6379": "options",
    f"redis://:{SECRET}@h/database": "database",
    f"redis://:{SECRET}@h/1/2": "database",
    f"redis://:{SECRET}@h?ssl_cert_reqs=none": "ssl_cert_reqs",
    f"redis://:{SECRET}@a,b": "several hosts",
    f"redis+sentinel://:{SECRET}@a": "master",
    f"redis+sentinel://:{SECRET}@a/m/x": "database",
    f"redis+cluster://:{SECRET}@a/1": "database 0",
}


@pytest.mark.parametrize("url", ADDRESSES)
def test_a_url_is_taken_apart(url: str) -> None:
    """With its defaults, and its quoted characters as they are."""
    assert parse(url) == ADDRESSES[url]


@pytest.mark.parametrize(("url", "why"), REFUSED.items())
def test_a_url_that_leads_nowhere_is_explained(url: str, why: str) -> None:
    """Without its password, in whatever way it is wrong."""
    with pytest.raises(InvalidUrlError, match=why) as refused:
        parse(url)
    said = str(refused.value)
    assert SECRET not in said
    assert "redis+sentinel://" in said, "the forms that are understood"
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_a_cluster_may_be_named_by_an_option() -> None:
    """Providers give it a URL like any other."""
    assert parse("redis://a", cluster=True) == Address(CLUSTER, (("a", 6379),))
    with pytest.raises(InvalidUrlError, match="Sentinel"):
        parse("redis+sentinel://a/m", cluster=True)


def test_an_address_shows_no_password() -> None:
    """Wherever it is printed."""
    assert SECRET not in repr(parse(f"redis://:{SECRET}@h"))

"""The clients that `connect` makes."""

import ssl
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio as aioredis

from idempotency import InvalidUrlError, Manager, SyncManager, connect, connect_sync


def options_of(client: Any) -> dict[str, Any]:
    """What its connections are made with."""
    found: dict[str, Any] = client.connection_pool.connection_kwargs
    return found


@pytest.mark.parametrize("make", [connect, connect_sync])
def test_a_client_is_bounded_in_all_it_does(make: Any) -> None:
    """Connections, the wait for one of them, answers; and what asks again is the store."""
    client = make("redis://app:pw@h:6380/2")
    pool, options = client.connection_pool, options_of(client)
    assert type(pool).__name__ == "BlockingConnectionPool"
    assert (pool.max_connections, pool.timeout) == (20, 5)
    assert {name: options[name] for name in ("host", "port", "db", "username", "password")} == {
        "host": "h",
        "port": 6380,
        "db": 2,
        "username": "app",
        "password": "pw",
    }
    assert (options["socket_timeout"], options["socket_connect_timeout"]) == (5, 5)
    assert (options["socket_keepalive"], options["health_check_interval"]) == (True, 30)
    assert options["retry"].get_retries() == 0


@pytest.mark.parametrize("make", [connect, connect_sync])
def test_certificates_are_checked_unless_told_otherwise(make: Any, tmp_path: Path) -> None:
    """Heroku's are self-signed: an explicit word takes them, or a file with those to trust."""
    checked = options_of(make("rediss://h"))
    assert (checked["ssl_cert_reqs"], checked["ssl_check_hostname"]) == (ssl.CERT_REQUIRED, True)
    unchecked = options_of(make("rediss://h", verify=False))
    assert (unchecked["ssl_cert_reqs"], unchecked["ssl_check_hostname"]) == (ssl.CERT_NONE, False)
    assert options_of(make("rediss://h", ca_file=tmp_path / "ca.pem"))["ssl_ca_certs"] == str(tmp_path / "ca.pem")
    assert make("rediss://h").connection_pool.connection_class.__name__ == "SSLConnection"
    made = make("rediss://h", verify=False).connection_pool.make_connection()
    assert made.cert_reqs == ssl.CERT_NONE


@pytest.mark.parametrize("make", [connect, connect_sync])
def test_sentinels_have_a_password_of_their_own(make: Any) -> None:
    """That of the URL is for Redis."""
    url = "rediss+sentinel://app:pw@a:1,b:2/mymaster/3"
    client = make(url, sentinel_password="own", max_connections=7, timeout=timedelta(seconds=2))  # noqa: S106 -- to be looked for
    pool, options = client.connection_pool, options_of(client)
    assert (pool.service_name, pool.max_connections, options["db"]) == ("mymaster", 7, 3)
    assert (options["username"], options["password"], options["socket_timeout"]) == ("app", "pw", 2)
    assert "SSL" in pool.connection_class.__name__
    asked = [options_of(each) for each in pool.sentinel_manager.sentinels]
    assert [(each["host"], each["port"], each["password"], each["username"]) for each in asked] == [
        ("a", 1, "own", None),
        ("b", 2, "own", None),
    ]


def test_a_cluster_has_a_client_of_its_own() -> None:
    """By its scheme or by an option; it connects with its first request."""
    client = connect("rediss+cluster://:pw@a:1,b:2", verify=False)
    assert isinstance(client, aioredis.RedisCluster)
    assert {node.name for node in client.nodes_manager.startup_nodes.values()} == {"a:1", "b:2"}
    assert isinstance(connect("redis://a", cluster=True), aioredis.RedisCluster)
    Manager(client)


def test_the_clients_fit_their_managers() -> None:
    """And each other's not."""
    Manager(connect("redis://h"))
    SyncManager(connect_sync("redis://h"))
    with pytest.raises(TypeError, match="SyncManager takes one of redis"):
        Manager(connect_sync("redis://h"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Manager takes one of redis\.asyncio"):
        SyncManager(connect("redis://h"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a client of redis"):
        SyncManager(redis.Redis().pipeline())


def test_a_url_that_leads_nowhere_is_refused_at_once() -> None:
    """Not with the first event."""
    with pytest.raises(InvalidUrlError):
        connect("http://h")
    with pytest.raises(TypeError, match="verfy"):
        connect("rediss://h", verfy=False)  # type: ignore[call-arg]

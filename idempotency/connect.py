"""Clients of Redis as a store wants them: few connections, timeouts on everything, no retries of their own."""

import ssl
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict, Unpack

import redis
import redis.asyncio as aioredis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from idempotency.address import Address, Kind, parse
from idempotency.pools import AsyncSentinelPool, SyncSentinelPool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    cluster: bool = False
    verify: bool = True
    ca_file: str | Path | None = None
    sentinel_username: str | None = None
    sentinel_password: str | None = None
    max_connections: int = 20
    wait_for_connection: timedelta = timedelta(seconds=5)
    connect_timeout: timedelta = timedelta(seconds=5)
    timeout: timedelta = timedelta(seconds=5)
    health_check: timedelta = timedelta(seconds=30)


class ConnectOptions(TypedDict, total=False):
    """How to connect.

    cluster: the URL is that of a Cluster, as with `redis+cluster://`. Default False.
    verify: whether the server's certificate and name are checked (rediss). Heroku's certificates are self-signed:
        False encrypts without knowing to whom. Default True.
    ca_file: the certificates to trust in place of the system's.
    sentinel_username, sentinel_password: for the Sentinels themselves; those of the URL are for Redis.
    max_connections: at most, for each server. Default 20.
    wait_for_connection: how long a request waits for one of them. Default 5 seconds.
    connect_timeout, timeout: how long a connection and an answer are waited for. Default 5 seconds each.
    health_check: an idle connection is asked whether it is alive after so long. Default 30 seconds.
    """

    cluster: bool
    verify: bool
    ca_file: str | Path | None
    sentinel_username: str | None
    sentinel_password: str | None
    max_connections: int
    wait_for_connection: timedelta
    connect_timeout: timedelta
    timeout: timedelta
    health_check: timedelta


def connect(url: str, **options: Unpack[ConnectOptions]) -> aioredis.Redis | aioredis.RedisCluster:
    """A client for `Manager`: `connect(os.environ["REDIS_URL"])`. It connects with its first request.

    The URL is `redis://`, `rediss://` (TLS), `redis+cluster://host:port,host:port` or
    `redis+sentinel://host:port,host:port/master`. The options are those of `ConnectOptions`. Raises InvalidUrlError,
    which shows no password. The client is the caller's to close, by `await client.aclose()`.
    """
    client: aioredis.Redis | aioredis.RedisCluster = _made(aioredis, AsyncRetry(NoBackoff(), 0), url, options)
    return client


def connect_sync(url: str, **options: Unpack[ConnectOptions]) -> redis.Redis | redis.RedisCluster:
    """A client for `SyncManager`, like `connect`. That of a Cluster connects at once."""
    client: redis.Redis | redis.RedisCluster = _made(redis, Retry(NoBackoff(), 0), url, options)
    return client


def _made(library: Any, retry: Retry | AsyncRetry, url: str, options: ConnectOptions) -> Any:
    """A client of one of the two libraries, which name their parts alike."""
    chosen = _Options(**options)
    address = parse(url, cluster=chosen.cluster)
    common: dict[str, Any] = {**_common(address, chosen), "retry": retry}
    match address.kind:
        case Kind.CLUSTER:
            nodes = [library.cluster.ClusterNode(*host) for host in address.hosts]
            return library.RedisCluster(startup_nodes=nodes, max_connections=chosen.max_connections, **common)
        case Kind.SENTINEL:
            own = {"username": chosen.sentinel_username, "password": chosen.sentinel_password}
            sentinel = library.Sentinel(address.hosts, sentinel_kwargs={**common, **own}, **common)
            return sentinel.master_for(
                address.master,
                connection_pool_class=AsyncSentinelPool if library is aioredis else SyncSentinelPool,
                max_connections=chosen.max_connections,
                db=address.database,
            )
        case Kind.SERVER:
            pool = library.BlockingConnectionPool(
                connection_class=library.SSLConnection if common.pop("ssl", False) else library.Connection,
                max_connections=chosen.max_connections,
                timeout=chosen.wait_for_connection.total_seconds(),
                host=address.hosts[0][0],
                port=address.hosts[0][1],
                db=address.database,
                **common,
            )
            return library.Redis.from_pool(pool)


def _common(address: Address, options: _Options) -> dict[str, Any]:
    found: dict[str, Any] = {
        "username": address.username,
        "password": address.password,
        "socket_connect_timeout": options.connect_timeout.total_seconds(),
        "socket_timeout": options.timeout.total_seconds(),
        "socket_keepalive": True,
        "health_check_interval": options.health_check.total_seconds(),
    }
    if address.tls:
        found |= {
            "ssl": True,
            "ssl_cert_reqs": ssl.CERT_REQUIRED if options.verify else ssl.CERT_NONE,
            "ssl_check_hostname": options.verify,
            "ssl_ca_certs": None if options.ca_file is None else str(options.ca_file),
        }
    return found

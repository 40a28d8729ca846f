"""Pools over Sentinel that close, with themselves, the connections to the Sentinels, which nobody else knows of."""

from redis.asyncio.sentinel import SentinelConnectionPool as AsyncPool
from redis.sentinel import SentinelConnectionPool as SyncPool


class AsyncSentinelPool(AsyncPool):
    """The pool of `connect`."""

    async def disconnect(self, inuse_connections: bool = True) -> None:  # noqa: FBT001, FBT002 -- the client's own
        """Close the connections to the master; where all of them, also those to the Sentinels."""
        await super().disconnect(inuse_connections)
        if inuse_connections:
            for each in self.sentinel_manager.sentinels:
                await each.aclose()


class SyncSentinelPool(SyncPool):
    """The pool of `connect_sync`."""

    def disconnect(self, inuse_connections: bool = True) -> None:  # noqa: FBT001, FBT002 -- the client's own
        """Close the connections to the master; where all of them, also those to the Sentinels."""
        super().disconnect(inuse_connections)
        if inuse_connections:
            for each in self.sentinel_manager.sentinels:
                each.close()

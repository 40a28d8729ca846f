"""Several servers of Redis: a Cluster, a master with its replica, a Sentinel over them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from relay.dev.programs import redis_program
from relay.dev.redis import EmbeddedRedis
from relay.dev.sandbox import Sandbox
from tests.support.waiting import until

SLOTS = 16_384
MASTER = "mymaster"


class ClusterNode(EmbeddedRedis):
    """A server in cluster mode. Its bus has a port of its own: the usual one may lie beyond the last."""

    bus = 0

    def _command(self) -> Sequence[str | Path]:
        self.bus = self._choose_port()
        self._settings = {
            "cluster-enabled": "yes",
            "cluster-port": str(self.bus),
            "cluster-node-timeout": "30000",
            "cluster-require-full-coverage": "no",
        }
        return super()._command()


class Sentinel(EmbeddedRedis):
    """A Sentinel that watches one master."""

    name = "Sentinel"
    master: EmbeddedRedis

    def _command(self) -> Sequence[str | Path]:
        self._config.parent.mkdir(mode=0o700, exist_ok=True)
        lines = [
            "bind 127.0.0.1",
            f"port {self.port}",
            f"requirepass {self.password}",
            f"dir {self._config.parent}",
            f"sentinel monitor {MASTER} 127.0.0.1 {self.master.port} 1",
            f"sentinel auth-pass {MASTER} {self.master.password}",
            f"sentinel down-after-milliseconds {MASTER} 1000",
            f"sentinel failover-timeout {MASTER} 3000",
        ]
        self._config.write_text("".join(f"{line}\n" for line in lines))
        return (redis_program(), self._config, "--sentinel")


@dataclass
class Cluster:
    """Two masters with half of the slots each."""

    nodes: list[ClusterNode]

    @property
    def url(self) -> str:
        """The URL for `connect`."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"redis+cluster://:{self.nodes[0].password}@{hosts}"


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A Cluster that serves all slots."""
    with ExitStack() as stack:
        nodes = [ClusterNode(stack.enter_context(Sandbox())) for _ in range(2)]
        for number, node in enumerate(nodes):
            node.password = nodes[0].password
            node.start()
            first, last = number * SLOTS // 2, (number + 1) * SLOTS // 2 - 1
            _ask(node, "CLUSTER", "ADDSLOTSRANGE", first, last)
            _ask(node, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        _ask(nodes[0], "CLUSTER", "MEET", "127.0.0.1", nodes[1].port, nodes[1].bus)
        for node in nodes:
            until(lambda node=node: _serves_all(node), "the cluster serves all slots")  # type: ignore[misc]
        yield Cluster(nodes)


@dataclass
class Pair:
    """A master and its replica, with one password."""

    master: EmbeddedRedis
    replica: EmbeddedRedis


@contextmanager
def pair() -> Iterator[Pair]:
    """A master, and a replica that has all that it has."""
    with Sandbox() as one, Sandbox() as other:
        master = EmbeddedRedis(one, settings={"repl-diskless-sync-delay": "0"})
        master.start()
        settings = {"replicaof": f"127.0.0.1 {master.port}", "masterauth": master.password}
        replica = EmbeddedRedis(other, settings=settings)
        replica.password = master.password
        replica.start()
        until(lambda: _follows(replica), "the replica has all that the master has")
        yield Pair(master, replica)


@contextmanager
def sentinel_over(servers: Pair) -> Iterator[Sentinel]:
    """A Sentinel that knows both."""
    with Sandbox() as sandbox:
        sentinel = Sentinel(sandbox)
        sentinel.master = servers.master
        sentinel.start()
        until(lambda: _knows_a_replica(sentinel), "the Sentinel knows the replica")
        yield sentinel


def client_of(server: EmbeddedRedis) -> Redis:
    """A client of one server."""
    return Redis.from_url(server.url, decode_responses=True)


def _ask(server: EmbeddedRedis, *command: str | int) -> object:
    with client_of(server) as client:
        return client.execute_command(*command)


def _serves_all(node: ClusterNode) -> bool:
    with client_of(node) as client:
        state = client.execute_command("CLUSTER", "INFO")
        slots = client.execute_command("CLUSTER", "SLOTS")
    return "cluster_state:ok" in str(state) and len(slots) == 2


def _follows(replica: EmbeddedRedis) -> bool:
    with client_of(replica) as client:
        return str(client.info("replication").get("master_link_status")) == "up"


def _knows_a_replica(sentinel: Sentinel) -> bool:
    with client_of(sentinel) as client:
        try:
            found = client.execute_command("SENTINEL", "REPLICAS", MASTER)
        except RedisError:
            return False
    return bool(found)

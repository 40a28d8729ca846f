"""Which server of a Cluster each command is for."""

from collections.abc import Sequence
from typing import Any

from redis.crc import key_slot

# Where a command has its first key: EVALSHA, the script, how many keys, the keys.
_FIRST_KEY = 3


def by_server(client: Any, commands: Sequence[tuple[Any, ...]]) -> list[list[int]]:
    """The positions of the commands for each server, as far as the client knows the servers.

    A pipeline over several servers fails as a whole when one of them is away.
    """
    slots = client.nodes_manager.slots_cache
    groups: dict[str, list[int]] = {}
    for position, command in enumerate(commands):
        servers = slots.get(key_slot(command[_FIRST_KEY]))
        groups.setdefault(servers[0].name if servers else "", []).append(position)
    return list(groups.values())


def in_order(groups: Sequence[Sequence[int]], answers: Sequence[Sequence[Any]]) -> list[Any]:
    """The answers of all groups, in the order of the commands."""
    placed = {
        position: answer
        for group, answered in zip(groups, answers, strict=True)
        for position, answer in zip(group, answered, strict=True)
    }
    return [placed[position] for position in range(len(placed))]

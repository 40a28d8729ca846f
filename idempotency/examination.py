"""What a Redis says of itself that a store of marks should not be built on unawares."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from idempotency.settings import Settings


@dataclass(slots=True)
class Facts:
    """What was read of the servers, and what could not be."""

    policies: set[str] = field(default_factory=set)
    append_only: set[bool] = field(default_factory=set)
    snapshots: set[str] = field(default_factory=set)
    snapshots_known: bool = True
    failures: dict[str, str] = field(default_factory=dict)

    def learn(self, answers: Iterable[Mapping[str, Any]]) -> None:
        """Take in what the servers answered."""
        for answer in answers:
            if "maxmemory_policy" in answer:
                self.policies.add(str(answer["maxmemory_policy"]))
            if "aof_enabled" in answer:
                self.append_only.add(bool(int(answer["aof_enabled"])))
            if "save" in answer:
                self.snapshots.add(str(answer["save"]))

    def unread(self, section: str, error: Exception) -> None:
        """INFO could not be had."""
        self.failures[section] = f"{type(error).__name__}: {error}"

    def unknown_snapshots(self) -> None:
        """CONFIG could not be had, as with most providers."""
        self.snapshots_known = False


def configured(answers: Iterable[Mapping[Any, Any]]) -> list[dict[str, Any]]:
    """The answers to CONFIG GET, whose names and values are bytes where the client decodes nothing."""
    return [{_text(name): _text(value) for name, value in each.items()} for each in answers]


def warnings(settings: Settings, retention: timedelta | None, facts: Facts) -> list[str]:
    """One sentence for each thing that endangers what the store promises: what is, and what to do."""
    return [*_eviction(facts), *life_warnings(settings, retention), *_persistence(facts)]


def _eviction(facts: Facts) -> list[str]:
    if not facts.policies:
        why = facts.failures.get("memory", "INFO memory does not tell it")
        return [
            (
                f"Whether Redis evicts marks could not be read ({why}); see to it that maxmemory-policy is noeviction,"
                " or a full Redis forgets what was processed."
            )
        ]
    return [
        f"Redis evicts keys when its memory is full (maxmemory-policy is {policy!r}), marks of processed events among"
        " them, and their events then take effect again; set maxmemory-policy to noeviction (on Heroku: heroku"
        " redis:maxmemory --policy noeviction)."
        for policy in sorted(facts.policies - {"noeviction"})
    ]


def life_warnings(settings: Settings, retention: timedelta | None) -> list[str]:
    """That marks live for a shorter time than deliveries are repeated."""
    if retention is None or settings.ttl >= retention:
        return []
    return [
        (
            f"Marks live for {_hours(settings.ttl)} (ttl), and the broker may deliver an event again for"
            f" {_hours(retention)}; a delivery in between takes effect twice. Set the ttl to {_hours(retention)} or"
            " more."
        )
    ]


def _persistence(facts: Facts) -> list[str]:
    if not facts.append_only:
        why = facts.failures.get("persistence", "INFO persistence does not tell it")
        return [
            (
                f"Whether Redis keeps its marks over a restart could not be read ({why}); advice: see to it that"
                " appendonly is on."
            )
        ]
    if all(facts.append_only):
        return []
    if not facts.snapshots_known:
        return [
            (
                "Redis keeps no append-only file (aof_enabled is 0), and whether it makes snapshots could not be read;"
                " advice: where it makes none, a restart forgets every mark. Use a plan with persistence."
            )
        ]
    if facts.snapshots and "" not in facts.snapshots:
        return [
            (
                f"Redis keeps no append-only file (aof_enabled is 0), only snapshots (save is"
                f" {', '.join(sorted(facts.snapshots))!r}); advice: a crash forgets the marks since the last one. Set"
                " appendonly to yes."
            )
        ]
    return [
        (
            "Redis keeps nothing on disk (aof_enabled is 0, save is empty); advice: a restart forgets every mark, and"
            " whatever is delivered again takes effect twice. Set appendonly to yes, or use a plan with persistence."
        )
    ]


def _hours(life: timedelta) -> str:
    return f"{life / timedelta(hours=1):g} h"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)

"""Findings, and checks that are made one after the other, whatever becomes of each."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from relay.errors import RelayError
from relay.kernel.failure import sentence

# How long one check may take; a server that does not answer must not hide what the others would find.
CHECK_SECONDS = 20.0


class Status(Enum):
    """How bad it is. What fails stops events, now or soon; what warns will cost time or room."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found; `remedy` is the next thing to do, where it is not ok."""

    check: str
    status: Status
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        line = f"{self.status.value:<4}  {self.check}: {self.found}"
        return f"{line}; {self.remedy}" if self.remedy else line

    def as_json(self) -> dict[str, str]:
        """The finding for scripts."""
        named = {"check": self.check, "status": self.status.value, "found": self.found}
        return named | ({"remedy": self.remedy} if self.remedy else {})


def ok(check: str, found: str) -> Finding:
    """Nothing is to be done."""
    return Finding(check, Status.OK, found)


def warn(check: str, found: str, remedy: str) -> Finding:
    """Events flow; this will cost time or room."""
    return Finding(check, Status.WARN, found, remedy)


def fail(check: str, found: str, remedy: str) -> Finding:
    """Events do not flow, or will stop."""
    return Finding(check, Status.FAIL, found, remedy)


@dataclass(frozen=True, slots=True)
class Check:
    """A look at one thing, which may find several."""

    name: str
    look: Callable[[], Awaitable[Sequence[Finding]]]


@dataclass(frozen=True, slots=True)
class Report:
    """All that was found, in the order of the checks."""

    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing fails; warnings do not."""
        return all(finding.status is not Status.FAIL for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """The report for scripts."""
        return {"passed": self.passed, "findings": [finding.as_json() for finding in self.findings]}


async def examine(checks: Iterable[Check], tell: Callable[[Finding], None]) -> Report:
    """Make the checks in their order, and tell each finding as it is made. One that breaks is a finding itself."""
    findings: list[Finding] = []
    for check in checks:
        for finding in await _look(check):
            tell(finding)
            findings.append(finding)
    return Report(tuple(findings))


async def _look(check: Check) -> Sequence[Finding]:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await check.look()
    except TimeoutError:
        found = f"no answer within {CHECK_SECONDS:.0f} s"
    except RelayError as error:
        found = str(error)
    except Exception as error:  # noqa: BLE001 -- one check that breaks, in whatever way, must not hide the others
        found = sentence(error)
    return (fail(check.name, f"could not be looked at: {found}", "mend this first, then run doctor again"),)

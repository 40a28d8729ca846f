"""Jobs that are another service's: a call of its internal API, which knows us by a token."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from relay.kernel.code_duration import Duration, shown

if TYPE_CHECKING:
    from relay.upkeep.run import Run

METHODS: Final = ("POST", "PUT", "PATCH", "GET", "DELETE")
_PATH = re.compile(r"/[!-~]{0,1000}")


@dataclass(frozen=True, slots=True)
class HttpCall:
    """What is called."""

    method: str
    path: str

    @classmethod
    def of(cls, method: str, path: str) -> "HttpCall":
        """Read them. Raises ValueError with one sentence."""
        if method not in METHODS:
            raise ValueError(f"method is {shown(method)}; write one of {', '.join(METHODS)}")
        if not _is_path(path):
            raise ValueError(f"path is {shown(path)}; write it like /internal/digest, percent-encoded")
        return cls(method, path)

    def __str__(self) -> str:
        """The call as errors name it: what is asked for may be somebody's data."""
        return f"{self.method} {self.path.partition('?')[0]}"


@dataclass(frozen=True, slots=True)
class HttpJob:
    """The work of a job that calls the API, and does nothing else."""

    call: HttpCall
    timeout: Duration

    async def __call__(self, run: "Run") -> None:
        """Call it. Raises what the job has failed by."""
        await run.call_api(self.call.method, self.call.path, timeout=self.timeout)


def _is_path(path: object) -> bool:
    return isinstance(path, str) and bool(_PATH.fullmatch(path)) and not path.startswith("//") and "#" not in path

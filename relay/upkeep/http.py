"""Jobs that are another service's: a call of its internal API, which knows us by a token."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from relay.kernel.code_duration import shown

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

    async def __call__(self, run: "Run") -> None:
        """Call it. Raises what the job has failed by."""
        await run.call_api(self.method, self.path)


def _is_path(path: object) -> bool:
    return isinstance(path, str) and bool(_PATH.fullmatch(path)) and not path.startswith("//") and "#" not in path

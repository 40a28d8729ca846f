"""What a metric is, for its documentation and for whoever counts; loads nothing of Prometheus."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

# Some labels come from rows and brokers: so many values get a label of their own, all further ones share OTHER.
MOST_VALUES = 50
OTHER = "other"


class Kind(Enum):
    """What a metric is to Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Definition:
    """What is written in the documentation, and at the top of the metric itself."""

    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def markdown(definitions: Mapping[str, Definition]) -> str:
    """Every metric, as a Markdown table."""
    rows = (
        f"| `{name}` | {metric.kind.value} | {', '.join(f'`{label}`' for label in metric.labels)} | {metric.meaning} |"
        for name, metric in definitions.items()
    )
    return "\n".join(("| metric | kind | labels | meaning |", "|---|---|---|---|", *rows)) + "\n"


class Bounded:
    """Gives the first values of a label their own name, and all that come after them one in common."""

    def __init__(self, most: int = MOST_VALUES) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        """The value, or OTHER."""
        if value not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(value)
        return value

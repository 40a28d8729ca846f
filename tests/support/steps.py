"""What may happen in the model tests, as strategies: events, mishaps in the middle of a pass, moods of the broker."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from relay.publisher.crash_points import Point
from tests.support.actors import STATEMENTS, Place
from tests.support.writers import UNBUILDABLE, Spec

TOPICS = ["domain-events", "notes", "special"]
KEYS = ["a", "a", "a", "b", "c", "d"]
HEADS = ["block", "skip", "block, note.*=skip"]


@dataclass(frozen=True, slots=True)
class Deed:
    """What somebody does: a relay's `pass`, a service's `commit` or `store`, or what an operator does."""

    what: str
    which: int = 0
    specs: Sequence[Spec] = ()


@dataclass(frozen=True, slots=True)
class Mishap:
    """Where in a pass, and what: a deed of somebody else's, or the relay's death."""

    place: Place
    deed: Deed | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """The broker's mood from now on."""

    what: str
    topics: Sequence[str] = ()
    code: str = ""
    key: str = ""


THIRD = st.integers(0, 2)
SECONDS = st.sampled_from([0.0, 2.0])  # one batch, or all that is left

TYPES = st.sampled_from(["order.paid", "order.paid", "order.paid", "note.added"])
SICKNESSES = st.sampled_from([None] * 5 + [UNBUILDABLE, "INVALID_ARGUMENT", "INTERNAL", "bug"])
FAILING = st.sampled_from([None, None, None, UNBUILDABLE, "bug", "INVALID_ARGUMENT", "INTERNAL"])
# Events of one key, often behind one that will fail.
CHAINS = st.builds(
    lambda head, tail: [head, *(replace(each, key=head.key) for each in tail)],
    st.builds(Spec, TYPES, st.sampled_from(KEYS), sick=FAILING),
    st.lists(st.builds(Spec, TYPES), min_size=1, max_size=4),
)
MIXED = st.lists(
    st.one_of(
        st.builds(Spec, TYPES, st.sampled_from(KEYS), sick=SICKNESSES),
        st.builds(
            Spec,
            TYPES,
            st.sampled_from([None, *KEYS]),
            st.sampled_from([None, "special"]),
            st.sampled_from([None, "first", "second"]),
            sick=SICKNESSES,
        ),
        st.builds(Spec, scheduled=st.booleans(), sick=SICKNESSES),
    ),
    min_size=1,
    max_size=5,
)
SPECS = CHAINS | MIXED

# What is done most often is what a relay must expect most: another relay's pass.
PASSES = st.builds(Deed, st.just("pass"), THIRD)
OPERATIONS = st.builds(
    Deed, st.sampled_from(["retry", "retry", "discard", "make due", "make due", "hold", "let go"]), THIRD
)
DEEDS = st.one_of(
    PASSES,
    PASSES,
    OPERATIONS,
    st.builds(Deed, st.just("commit"), THIRD),
    st.builds(Deed, st.just("store"), THIRD, SPECS),
)
PLACES = st.builds(
    Place,
    st.sampled_from(["claim_ordered", "request", "answer", "commit", *STATEMENTS]),
    st.sampled_from([1, 1, 1, 2]),
)
# What one relay has seen of a key, and not locked yet, another may change.
RACES = st.builds(Mishap, st.just(Place("claim_ordered", 1)), PASSES)
MEANWHILE = RACES | RACES | st.builds(Mishap, PLACES, DEEDS)
ENDINGS = st.builds(
    Mishap,
    st.one_of(
        PLACES,
        st.builds(Place, st.sampled_from([point.value for point in Point]), st.integers(1, 2)),
        st.builds(Place, st.just("lost commit"), st.integers(1, 2)),
    ),
)
CHANGES = st.one_of(
    st.builds(
        Change,
        st.just("refuse"),
        st.lists(st.sampled_from(TOPICS), min_size=1, unique=True),
        st.sampled_from(["UNAVAILABLE", "NOT_FOUND", "INVALID_ARGUMENT"]),
    ),
    st.builds(Change, st.just("throttle"), key=st.sampled_from(KEYS)),
    st.builds(Change, st.sampled_from(["recover", "lose", "lose", "heal"])),
)

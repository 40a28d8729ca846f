"""Who pays: the table of the policy, row by row, without a server."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.errors import BrokerError, MessageError
from relay.kernel.backoff import Retry
from relay.publisher.failures import REST_SECONDS, Attempts, Charge, Suspicion, Verdict, charge, suspicion, verdict

ATTEMPTS = Attempts(25, Retry(base=5, most=120, jitter=0.5))
ON_THE_PATH = ["INTERNAL", "ABORTED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "UNKNOWN", "CANCELLED", "FAILED_PRECONDITION"]
OF_THE_TOPIC = ["NOT_FOUND", "PERMISSION_DENIED", "UNAUTHENTICATED"]

Row = tuple[Exception, Verdict, Verdict, Verdict]

TABLE: list[Row] = [
    # error, alone with control, alone without, among others
    (MessageError("invalid_attributes", "x"), Verdict.ROW_INVALID, Verdict.ROW_INVALID, Verdict.ROW_INVALID),
    (BrokerError("INVALID_ARGUMENT", "x"), Verdict.ROW_INVALID, Verdict.TOPIC_OUTAGE, Verdict.ISOLATE),
    *(
        (BrokerError(code, "x"), Verdict.ROW_STRIKE, Verdict.TOPIC_OUTAGE, Verdict.ISOLATE)
        for code in [*ON_THE_PATH, "A_CODE_OF_TOMORROW"]
    ),
    (BrokerError("RESOURCE_EXHAUSTED", "x"), Verdict.TOPIC_OUTAGE, Verdict.TOPIC_OUTAGE, Verdict.TOPIC_OUTAGE),
    *(
        (BrokerError(code, "x"), Verdict.TOPIC_OUTAGE, Verdict.TOPIC_OUTAGE, Verdict.TOPIC_OUTAGE)
        for code in OF_THE_TOPIC
    ),
    (OSError(24, "too many open files"), Verdict.ROW_STRIKE, Verdict.TOPIC_OUTAGE, Verdict.ISOLATE),
    (RuntimeError("a bug of an adapter"), Verdict.ROW_STRIKE, Verdict.ROW_STRIKE, Verdict.ISOLATE),
]


@pytest.mark.parametrize(
    ("error", "with_control", "without", "among_others"), TABLE, ids=[str(row[0]) for row in TABLE]
)
def test_the_verdict_follows_from_the_code_and_the_control(
    error: Exception, with_control: Verdict, without: Verdict, among_others: Verdict
) -> None:
    """Each row of the table."""
    suspected = suspicion(error)
    assert verdict(suspected, alone=True, control=True) is with_control
    assert verdict(suspected, alone=True, control=False) is without
    assert {verdict(suspected, alone=False, control=control) for control in (True, False)} == {among_others}


def test_a_key_that_is_too_fast_rests_where_its_topic_takes_others() -> None:
    """Without a control the topic is away, as for rows without a key."""
    throttled = suspicion(BrokerError("RESOURCE_EXHAUSTED", "x"))
    assert verdict(throttled, alone=True, control=True, keyed=True) is Verdict.KEY_RESTS
    assert verdict(throttled, alone=True, control=False, keyed=True) is Verdict.TOPIC_OUTAGE


@given(code=st.text(min_size=1, max_size=30), alone=st.booleans())
def test_no_answer_of_a_broker_charges_anybody_without_a_control(code: str, alone: bool) -> None:  # noqa: FBT001
    """Whatever a broker says, it may say it of everything."""
    found = verdict(suspicion(BrokerError(code, "x")), alone=alone, control=False)
    assert found in {Verdict.TOPIC_OUTAGE, Verdict.ISOLATE}


@given(suspected=st.sampled_from(Suspicion), control=st.booleans())
def test_nobody_among_others_is_charged(suspected: Suspicion, control: bool) -> None:  # noqa: FBT001
    """A row pays alone, or because no broker was needed to know it."""
    found = verdict(suspected, alone=False, control=control)
    assert found not in {Verdict.ROW_STRIKE, Verdict.ROW_INVALID} or suspected is Suspicion.NOT_BUILT


@pytest.mark.parametrize(
    ("guilty", "before", "pays"),
    [
        (Verdict.ROW_INVALID, 0, Charge(1, "non_retryable", 0.0)),
        (Verdict.ROW_INVALID, 24, Charge(1, "non_retryable", 0.0)),
        (Verdict.ROW_STRIKE, 0, Charge(1, None, 5.5)),
        (Verdict.ROW_STRIKE, 1, Charge(1, None, 10.5)),
        (Verdict.ROW_STRIKE, 3, Charge(1, None, 40.5)),
        (Verdict.ROW_STRIKE, 4, Charge(1, None, 80.5)),
        (Verdict.ROW_STRIKE, 5, Charge(1, None, 120)),
        (Verdict.ROW_STRIKE, 23, Charge(1, None, 120)),
        (Verdict.ROW_STRIKE, 24, Charge(1, "max_attempts", 0.0)),
        (Verdict.ROW_STRIKE, 99, Charge(1, "max_attempts", 0.0)),
        (Verdict.KEY_RESTS, 24, Charge(0, None, REST_SECONDS)),
        (Verdict.TOPIC_OUTAGE, 24, None),
        (Verdict.ISOLATE, 24, None),
    ],
)
def test_what_a_row_pays(guilty: Verdict, before: int, pays: Any) -> None:
    """One attempt and a delay that doubles, or its place in the claim; in an outage nothing."""
    assert charge(guilty, before, ATTEMPTS, jitter=lambda most: most) == pays

"""The registry: what it allows, what it refuses, and that a refusal tells nothing of the data."""

import json
import subprocess
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict  # before Python 3.12 pydantic takes no other

from relay import InvalidEventError, Registry, Rule
from relay.emit import _encode
from tests.support.outbox import event


class Line(BaseModel):
    """A part of an order."""

    price: Decimal = Field(alias="unitPrice", ge=0)


class OrderPaid(BaseModel):
    """Data in which much can be wrong."""

    model_config = ConfigDict(extra="forbid")

    amount: int
    currency: Literal["EUR", "USD"] = "EUR"
    lines: list[Line] = []
    notes: dict[str, int] = {}
    by_number: dict[int, int] = {}
    payer: int | list[UUID] = 0
    code: str = Field(default="", validation_alias=AliasChoices("code", AliasPath("codes", 0)))

    @field_validator("code")
    @classmethod
    def _quotes_its_input(cls, value: str) -> str:
        if value.startswith("custom "):
            raise PydanticCustomError(value, "{given}", {"given": value})
        if value:
            raise ValueError(f"no code is called {value}")
        return value


class OrderPaidV2(BaseModel):
    """The next version."""

    model_config = ConfigDict(strict=True)

    amount: Decimal
    paid_at: datetime


@dataclass
class Point:
    """No model, and taken all the same."""

    x: int


class Names(TypedDict):
    """The same."""

    first: str


REGISTRY = Registry(
    {"order.paid": Rule("order", {1: OrderPaid, 2: OrderPaidV2})},
    {
        "thing.moved": Rule(["thing", "order"], {7: Point}),
        "thing.named": Rule(("thing",), {1: Names, 2: list[int], 3: Any}),
    },
)


def refusal(data: Any, **fields: Any) -> str | None:
    """What emitting an event says, or None where it goes through; the event itself is never changed."""
    given = event(data=data, **fields)
    unchecked = _encode([given], order_lock=True)
    try:
        checked = _encode([given], order_lock=True, registry=REGISTRY)
    except InvalidEventError as error:
        return str(error)
    assert checked == unchecked
    return None


@pytest.mark.parametrize(
    ("fields", "data"),
    [
        ({}, {"amount": "7"}),
        ({}, OrderPaid(amount=1, lines=[Line(unitPrice=Decimal("9.90"))])),
        ({}, {"amount": 1, "lines": (Line(unitPrice=Decimal(1)),), "payer": [UUID(int=1)]}),
        ({"version": 2}, {"amount": Decimal("1.10"), "paid_at": datetime(2024, 1, 1, tzinfo=UTC)}),
        ({"event_type": "thing.moved", "aggregate_type": "thing", "version": 7}, Point(1)),
        ({"event_type": "thing.moved", "version": 7}, {"x": 1}),
        ({"event_type": "thing.named", "aggregate_type": "thing"}, {"first": "a"}),
        ({"event_type": "thing.named", "aggregate_type": "thing", "version": 2}, {1, 2}),
        ({"event_type": "thing.named", "aggregate_type": "thing", "version": 3}, None),
    ],
)
def test_what_the_stored_json_fits_is_emitted_as_it_was_given(fields: dict[str, Any], data: Any) -> None:
    """A text that the model reads as a number stays a text; a strict model takes the JSON of a datetime."""
    assert refusal(data, **fields) is None


@pytest.mark.parametrize(
    ("fields", "data", "words"),
    [
        ({"event_type": "order.payed"}, {}, "order.payed is no event type of the registry"),
        (
            {"aggregate_type": "customer"},
            {"amount": 1},
            "order.paid has an aggregate_type that the registry does not allow, which is order",
        ),
        (
            {"event_type": "thing.moved", "aggregate_type": "customer", "version": 7},
            {},
            "thing.moved has an aggregate_type that the registry does not allow, which is order or thing",
        ),
        ({"version": 3}, {"amount": 1}, "order.paid has version 3, the registry knows 1, 2"),
        ({}, [], "order.paid has data that its model for version 1 refuses: model_type"),
        ({}, {}, "order.paid has data that its model for version 1 refuses: amount missing"),
        (
            {},
            {"amount": "x", "lines": [{"unitPrice": 1}, {"unitPrice": -1}, {}]},
            "refuses: amount int_parsing, lines.1.unitPrice greater_than_equal, lines.2.unitPrice missing",
        ),
        (
            {},
            {"amount": 1, "secret": 1, "notes": {"secret": "x"}, "by_number": {"4111": "x"}},
            "refuses: notes.* int_parsing, by_number.* int_parsing, * extra_forbidden",
        ),
        (
            {},
            {"amount": 1, "currency": "GBP", "payer": {"secret": 1}, "code": "secret"},
            "refuses: currency literal_error, payer.int int_type, payer.* list_type, code value_error",
        ),
        ({}, {"amount": 1, "code": "custom secret"}, "for version 1 refuses: code refused"),
        ({"version": 2}, {"amount": 1, "paid_at": 1}, "for version 2 refuses: paid_at datetime_type"),
        ({"event_type": "thing.moved", "version": 7}, {"y": 1}, "for version 7 refuses: x missing"),
        ({"event_type": "thing.named", "aggregate_type": "thing"}, {"first": 1}, "refuses: first string_type"),
        (
            {"event_type": "thing.named", "aggregate_type": "thing", "version": 2},
            ["x"] * 12,
            ", 9 int_parsing, and 2 more",
        ),
    ],
)
def test_a_mismatch_is_told_by_paths_and_reasons(fields: dict[str, Any], data: Any, words: str) -> None:
    """In the model's own words; what the data alone knows is a star."""
    said = refusal(data, **fields)
    assert said
    assert said.endswith(words)


def test_of_many_events_the_one_that_is_refused_is_named() -> None:
    """By its place, in words and as a number."""
    with pytest.raises(InvalidEventError, match=r"^event 1 \(order\.paid\) has version 9, ") as refused:
        _encode([event(data={"amount": 1}), event(version=9)], order_lock=True, registry=REGISTRY)
    assert refused.value.position == 1


def test_a_generator_is_read_once() -> None:
    """What was checked is what is sent."""
    registry = Registry({"order.paid": Rule("order", {1: list[int]})})
    (sent,) = json.loads(_encode([event(data=(n for n in (1, 2)))], order_lock=True, registry=registry))
    assert sent["data"] == [1, 2]
    with pytest.raises(InvalidEventError, match=r"refuses: 1 int_parsing$"):
        _encode([event(data=(n for n in (1, "x")))], order_lock=True, registry=registry)


def test_what_is_no_json_is_refused_as_without_a_registry() -> None:
    """Before any model sees it."""
    with pytest.raises(InvalidEventError, match="the data is not JSON"):
        _encode([event(data=float("nan"))], order_lock=True, registry=REGISTRY)


def test_a_bug_in_a_validator_is_no_refusal() -> None:
    """It is the caller's own, and must not pass as bad data."""

    class Buggy(BaseModel):
        amount: int

        @field_validator("amount")
        @classmethod
        def _fails(cls, value: int) -> int:
            raise LookupError(f"no rate for {type(value).__name__}")

    with pytest.raises(LookupError, match="no rate for int"):
        _encode(
            [event(data={"amount": 1})], order_lock=True, registry=Registry({"order.paid": Rule("order", {1: Buggy})})
        )


SECRETS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20).map("hunter2{}".format)


def planted(secret: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Data that holds secrets wherever it can, in the shape of the model and out of it."""
    anything = st.recursive(
        secret, lambda part: st.lists(part, max_size=3) | st.dictionaries(secret, part, max_size=3), max_leaves=6
    )
    shaped = st.fixed_dictionaries(
        {},
        optional={
            "amount": anything,
            "currency": anything,
            "lines": st.lists(st.fixed_dictionaries({"unitPrice": anything}) | anything, max_size=3),
            "notes": st.dictionaries(secret, anything, max_size=3),
            "by_number": st.dictionaries(secret, anything, max_size=3),
            "payer": anything,
            "code": secret.map("custom {}".format) | anything,
            "codes": st.lists(anything, max_size=2),
        },
    )
    unknown = st.dictionaries(secret, anything, max_size=3)
    return st.tuples(shaped, unknown).map(lambda both: {**both[0], **both[1], "amount": "hunter2"}) | anything


@given(planted(SECRETS))
def test_no_refusal_tells_a_value_or_a_key_of_the_data(data: Any) -> None:
    """Neither the sentence, nor the errors in its context that a tracker would keep."""
    with pytest.raises(InvalidEventError) as refused:
        _encode([event(data=data)], order_lock=True, registry=REGISTRY)

    assert (refused.value.__cause__, refused.value.__context__) == (None, None)
    told = "".join(traceback.format_exception_only(refused.value))
    assert "hunter2" not in told
    assert len(told) < 2_000


def test_a_path_of_any_depth_is_told_to_a_bound() -> None:
    """A model may contain itself."""

    class Node(BaseModel):
        inner: "Node | None" = None

    data: Any = {"inner": 5}
    for _ in range(50):
        data = {"inner": data}
    registry = Registry({"order.paid": Rule("order", {1: Node})})
    with pytest.raises(InvalidEventError, match=r"refuses: inner(\.inner){11}\.… model_type$"):
        _encode([event(data=data)], order_lock=True, registry=registry)


def test_a_registry_is_what_it_was_made_of() -> None:
    """What is done to the mappings afterwards changes nothing."""
    versions: dict[int, Any] = {1: OrderPaid}
    rules = {"order.paid": Rule("order", versions)}
    registry = Registry(rules)
    versions[2] = OrderPaidV2
    rules["order.sent"] = Rule("order", {1: Any})

    assert repr(registry) == "<Registry of 1 event types>"
    assert registry.fault(event(version=2), "{}") == "has version 2, the registry knows 1"
    with pytest.raises(AttributeError):
        registry.further = rules  # type: ignore[attr-defined]  # what is refused
    with pytest.raises(AttributeError):
        rules["order.paid"].versions = {}  # type: ignore[misc]  # the same


def test_a_model_may_be_built_late_and_be_complete_by_then() -> None:
    """As one that puts its building off is."""

    class Later(BaseModel):
        model_config = ConfigDict(defer_build=True)
        amount: int

    registry = Registry({"order.paid": Rule("order", {1: Later})})
    assert registry.fault(event(), json.dumps({})) == ("has data that its model for version 1 refuses: amount missing")


class Unfinished(BaseModel):
    """Names what nobody has defined."""

    amount: "Amount"  # type: ignore[name-defined]  # noqa: F821 -- what is refused


RULE = Rule("order", {1: OrderPaid})
# Past the checker, which refuses most of what these are given.
made: Any = Rule
merged: Any = Registry


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: made("order", {}), ValueError, "a Rule has no versions"),
        (lambda: made("order", {0: Any}), ValueError, "version 0 of a Rule is not a whole number from 1 to 999999999"),
        (lambda: made("order", {10**9: Any}), ValueError, "version 1000000000 of a Rule"),
        (lambda: made("order", {"1": Any}), TypeError, "version '1' of a Rule is of type str, not int"),
        (lambda: made("order", {True: Any}), TypeError, "version True of a Rule is of type bool, not int"),
        (lambda: made("order", OrderPaid), TypeError, "mapping of version to model, not ModelMetaclass"),
        (lambda: made((), {1: Any}), ValueError, "a Rule allows no aggregate type"),
        (lambda: made("", {1: Any}), ValueError, "an aggregate type has 0 bytes, the limit is 1 to 255"),
        (lambda: made(("order", 5), {1: Any}), TypeError, "an aggregate type is a text, not of type int"),
        (lambda: made(None, {1: Any}), TypeError, "an aggregate type or a collection of them, not NoneType"),
        (lambda: merged([RULE]), TypeError, "mappings of event type to Rule, not list"),
        (lambda: merged({"order.paid": OrderPaid}), TypeError, "'order.paid' has a ModelMetaclass, not a Rule"),
        (lambda: merged({"x" * 256: RULE}), ValueError, "an event type has 256 bytes, the limit is 1 to 255"),
        (lambda: merged({7: RULE}), TypeError, "an event type is a text, not of type int"),
        (
            lambda: merged({"order.paid": RULE}, {"order.paid": RULE}),
            ValueError,
            "event type 'order.paid' has two rules; keep one",
        ),
        (
            lambda: merged({"order.paid": Rule("order", {1: Unfinished})}),
            TypeError,
            "event type 'order.paid', version 1: the model names Amount, which is not defined",
        ),
        (
            lambda: merged({"order.paid": Rule("order", {4: 5})}),
            TypeError,
            "event type 'order.paid', version 4: pydantic can check nothing against 5: ",
        ),
    ],
)
def test_what_can_be_no_rule_is_refused_where_it_is_written(build: Any, error: type[Exception], words: str) -> None:
    """When the service starts, and not at its first event."""
    with pytest.raises(error) as refused:
        build()
    assert words in str(refused.value)


def test_every_mapping_is_welcome() -> None:
    """One a module, merged by the registry."""
    parts: list[Mapping[str, Rule]] = [{"a": RULE}, {}, {"b": RULE}]
    assert repr(Registry(*parts)) == "<Registry of 2 event types>"


def test_emitting_with_a_registry_loads_nothing_of_the_relay() -> None:
    """Neither gRPC nor a web server, nor what reads settings."""
    script = (
        "import sys; from relay import Registry, Rule, emit; Registry({'a': Rule('a', {1: dict[str, int]})}); "
        "print([name for name in ('grpc', 'google.api_core', 'h11', 'structlog', 'backoff', 'pydantic_settings') "
        "if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"

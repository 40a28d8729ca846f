"""What a service says has happened, checked before it reaches the database."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Self
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic_core import ErrorDetails, PydanticCustomError

from relay import envelope
from relay.errors import InvalidEventError

NIL = UUID(int=0)
# Shown of a value that is refused; the rest could be long, or not meant for a log.
SHOWN = 64


def _text(most: int) -> AfterValidator:
    def check(value: str) -> str:
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            raise ValueError("contains a lone surrogate, which is not Unicode text") from None
        if not 1 <= size <= most:
            raise ValueError(f"has {size} bytes, the limit is 1 to {most}")
        if "\0" in value:
            raise ValueError("contains a NUL character, which Postgres cannot store")
        return value

    return AfterValidator(check)


def _not_nil(value: UUID) -> UUID:
    if value == NIL:
        raise ValueError("is the nil UUID, by which no consumer can deduplicate")
    return value


def _utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("is not in the years 1 to 9999 of UTC") from None


def _own_attributes(value: dict[str, str]) -> dict[str, str]:
    if fault := envelope.attributes_fault(value):
        raise _sentence(fault)
    return value


def _topic_name(value: str) -> str:
    if fault := envelope.topic_fault(value):
        raise _sentence(f"topic {value[:SHOWN]!r} {fault}")
    return value


def _sentence(fault: str) -> PydanticCustomError:
    return PydanticCustomError("sentence", "{fault}", {"fault": fault})


Name = Annotated[str, _text(envelope.NAME_BYTES)]
AttributeValue = Annotated[str, _text(envelope.ATTRIBUTE_VALUE_BYTES)]
Moment = Annotated[AwareDatetime, AfterValidator(_utc)]


class _Checked(BaseModel):
    """A model that says what is wrong in one sentence, without the payload."""

    @model_validator(mode="wrap")
    @classmethod
    def _in_words(cls, value: Any, check: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return check(value)
        except ValidationError as error:
            raise InvalidEventError(f"{cls.__name__}: {'; '.join(map(_words, error.errors()))}") from None


class Actor(_Checked):
    """Who caused the event; further fields travel with it."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: Name
    id: AttributeValue

    if TYPE_CHECKING:
        # Type checkers do not see that further fields are welcome.
        def __init__(self, *, type: str, id: str, **further: Any) -> None: ...  # noqa: A002


class Event(_Checked):
    """A fact, to be emitted in the transaction that makes it true. Raises InvalidEventError.

    `data` is any JSON value. What is not JSON in it is written the way pydantic writes it: a datetime as ISO 8601, a
    UUID, a Decimal or a timedelta as text, an enum as its value, a dataclass as an object, a model as an object under
    its aliases, a set as an array in no order, bytes as text where they are UTF-8. Refused at emit are NaN and
    infinity, NUL characters, lone surrogates, and whatever pydantic cannot write.

    What is left out is decided at emit: the event_id (time-ordered), occurred_at (now), the topic (by routing), and
    the attributes `traceparent` and `tracestate` (the current span's, where the service uses OpenTelemetry).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    event_type: Name
    aggregate_type: Name
    aggregate_id: AttributeValue
    data: Any
    event_id: Annotated[UUID, AfterValidator(_not_nil)] | None = None
    version: Annotated[int, Field(ge=1, le=envelope.VERSION_MOST)] = 1
    occurred_at: Moment | None = None
    actor: Actor | None = None
    topic: Annotated[str, _text(envelope.TOPIC_BYTES), AfterValidator(_topic_name)] | None = None
    ordering_key: Annotated[str, _text(envelope.ORDERING_KEY_BYTES)] | None = None
    dedup_key: Annotated[str, _text(envelope.DEDUP_KEY_BYTES)] | None = None
    available_at: Moment | None = None
    attributes: Annotated[dict[str, str], AfterValidator(_own_attributes)] = Field(default_factory=dict)

    @field_validator("available_at")
    @classmethod
    def _unordered(cls, value: datetime | None, others: ValidationInfo) -> datetime | None:
        if value is not None and others.data.get("ordering_key") is not None:
            raise _sentence(
                "has available_at and ordering_key, which exclude each other: a scheduled event would hold up its key"
            )
        return value


def _words(fault: ErrorDetails) -> str:
    """One fault, as `outbox_emit` would put it."""
    name = ".".join(map(str, fault["loc"]))
    match fault["type"]:
        case "sentence":
            return fault["msg"]
        case "missing":
            return f"has no {name}"
        case "extra_forbidden":
            return f"has the unknown field {name}"
        case "value_error":
            return f"{name} {fault['msg'].removeprefix('Value error, ')}"
        case "string_type":
            return f"{name} is of type {type(fault['input']).__name__}, not a text"
        case "dict_type" | "model_type":
            return f"{name} is of type {type(fault['input']).__name__}, not an object".lstrip()
        case _:
            return f"{name} {repr(fault['input'])[:SHOWN]}: {fault['msg']}".lstrip()

"""Which handler an event is for, and what is refused when it is registered."""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest

from consumers import ConfigurationError, Consumer, Context, Received
from consumers.handlers import Meant, Resolution, TooNew, TooOld, Unhandled, shape


async def one(event: Received[Any]) -> None:
    """A handler."""


async def two(event: Received[Any], ctx: Context) -> None:
    """A handler with its context."""


def plain(event: Received[Any]) -> None:
    """A handler in a thread."""


@pytest.fixture
def consumer() -> Consumer:
    return Consumer("billing")


def found(consumer: Consumer, event_type: str, version: int = 1) -> Resolution:
    return consumer.handlers.resolve(event_type, version)


def function_of(resolution: Resolution) -> Any:
    assert isinstance(resolution, Meant)
    return resolution.handler.function


class TestTheMostSpecificOne:
    """Is the event's."""

    def test_an_exact_type_goes_over_every_beginning(self, consumer: Consumer) -> None:
        consumer.on("order.paid.*")(one)
        consumer.on("order.*")(plain)
        consumer.on("order.paid")(two)
        assert function_of(found(consumer, "order.paid")) is two
        assert function_of(found(consumer, "order.paid.twice")) is one
        assert function_of(found(consumer, "order.shipped")) is plain

    def test_the_fallback_takes_what_is_left(self, consumer: Consumer) -> None:
        consumer.on("order.*")(one)
        assert found(consumer, "invoice.sent") == Unhandled()
        consumer.fallback(two)
        assert function_of(found(consumer, "invoice.sent")) is two
        assert function_of(found(consumer, "order.paid")) is one

    def test_a_pattern_and_any_take_every_version(self, consumer: Consumer) -> None:
        consumer.on("order.*")(one)
        consumer.on("note", version="any")(two)
        assert function_of(found(consumer, "order.paid", 7)) is one
        assert function_of(found(consumer, "note", 7)) is two

    def test_each_version_may_have_its_own(self, consumer: Consumer) -> None:
        consumer.on("note")(one)
        consumer.on("note", version=2)(two)
        assert function_of(found(consumer, "note", 1)) is one
        assert function_of(found(consumer, "note", 2)) is two


class TestVersions:
    """Newer ones are held, older ones upcast."""

    def test_a_newer_one_is_told_from_none(self, consumer: Consumer) -> None:
        consumer.on("note", version=2)(one)
        resolution = found(consumer, "note", 3)
        assert isinstance(resolution, TooNew)
        assert resolution.newest == 2

    def test_an_older_one_goes_to_the_next_handler_by_every_step(self, consumer: Consumer) -> None:
        consumer.on("note", version=3)(one)
        consumer.on("note", version=5)(two)
        steps = [consumer.upcast("note", from_version=version)(lambda data: data) for version in (1, 2)]
        resolution = found(consumer, "note", 1)
        assert function_of(resolution) is one
        assert isinstance(resolution, Meant)
        assert list(resolution.upcasters) == steps
        assert isinstance(found(consumer, "note", 4), TooOld)

    def test_a_step_that_is_missing_is_named(self, consumer: Consumer) -> None:
        consumer.on("note", version=4)(one)
        consumer.upcast("note", from_version=1)(lambda data: data)
        resolution = found(consumer, "note", 1)
        assert isinstance(resolution, TooOld)
        assert resolution.missing == 2

    def test_what_was_looked_up_before_is_looked_up_anew_after_a_registration(self, consumer: Consumer) -> None:
        consumer.on("note", version=2)(one)
        assert isinstance(found(consumer, "note", 1), TooOld)
        consumer.upcast("note", from_version=1)(lambda data: data)
        assert isinstance(found(consumer, "note", 1), Meant)

    def test_types_without_end_take_no_memory_without_end(self, consumer: Consumer) -> None:
        consumer.on("note.*")(one)
        for number in range(20_001):
            found(consumer, f"note.{number}")
        assert len(consumer.handlers._known) <= 10_000


def generator(event: Received[Any]) -> Iterator[int]:
    yield 1


async def async_generator(event: Received[Any]) -> AsyncIterator[int]:
    yield 1


def three(event: Any, ctx: Any, more: Any) -> None:
    """Too many."""


def none() -> None:
    """Too few."""


def keyword(event: Any, *, needed: Any) -> None:
    """What nobody gives it."""


class TestWhatIsRefused:
    """At once, and with the sentence that says what to do."""

    @pytest.mark.parametrize("function", [generator, async_generator, three, none, keyword])
    def test_a_function_that_is_no_handler(self, consumer: Consumer, function: Any) -> None:
        with pytest.raises(ConfigurationError, match=function.__name__):
            consumer.on("note")(function)

    def test_a_second_handler_of_the_same_events(self, consumer: Consumer) -> None:
        consumer.on("note", version=1)(one)
        consumer.on("order.*")(one)
        consumer.fallback(one)
        for register in (
            partial(consumer.on, "note"),
            partial(consumer.on, "note", version="any"),
            partial(consumer.on, "order.*"),
        ):
            with pytest.raises(ConfigurationError, match="has a handler already: one"):
                register()(two)
        with pytest.raises(ConfigurationError, match="there is a fallback already: one"):
            consumer.fallback(two)

    @pytest.mark.parametrize(
        ("event_type", "version", "words"),
        [
            ("", None, "the event type is empty"),
            ("*", None, "fallback"),
            ("a*b", None, r"a\*b"),
            ("note", 0, "write a number from 1 on"),
            ("note", "two", "write a number from 1 on"),
            ("note.*", 2, "takes every version"),
        ],
    )
    def test_a_type_or_a_version_that_is_none(
        self, consumer: Consumer, event_type: str, version: Any, words: str
    ) -> None:
        with pytest.raises(ConfigurationError, match=words):
            consumer.on(event_type, version=version)

    def test_an_upcaster_that_leads_nowhere(self, consumer: Consumer) -> None:
        consumer.on("note", version=2)(one)
        consumer.upcast("note", from_version=2)(lambda data: data)
        with pytest.raises(ConfigurationError, match=r"from version 2 leads to no handler; .*version=3"):
            consumer.handlers.check()

    def test_an_upcaster_that_is_asynchronous_is_there_already_or_begins_at_nothing(self, consumer: Consumer) -> None:
        async def up(data: Any) -> Any:
            return data

        with pytest.raises(ConfigurationError, match="asynchronous"):
            consumer.upcast("note", from_version=1)(up)
        with pytest.raises(ConfigurationError, match="the first is 1"):
            consumer.upcast("note", from_version=0)(lambda data: data)
        consumer.upcast("note", from_version=1)(lambda data: data)
        with pytest.raises(ConfigurationError, match="already"):
            consumer.upcast("note", from_version=1)(lambda data: data)

    def test_a_consumer_without_handlers(self, consumer: Consumer) -> None:
        with pytest.raises(ConfigurationError, match="there is no handler"):
            consumer.handlers.check()


class TestTheShape:
    """Whether it runs in a thread, and takes the context."""

    def test_of_functions_methods_partials_and_objects(self) -> None:
        class Object:
            async def __call__(self, event: Any, ctx: Any) -> None:
                """A handler."""

            def method(self, event: Any) -> None:
                """A handler."""

        def defaulted(event: Any, ctx: Any = None) -> None:
            """Takes it where it is there."""

        def open_end(*args: Any) -> None:
            """Takes all."""

        assert shape(one) == (False, False)
        assert shape(two) == (False, True)
        assert shape(plain) == (True, False)
        assert shape(Object()) == (False, True)
        assert shape(Object().method) == (True, False)
        assert shape(partial(defaulted, ctx=None)) == (True, False)
        assert shape(defaulted) == (True, True)
        assert shape(open_end) == (True, True)


def test_wrapped_handlers_are_for_the_same_events(consumer: Consumer) -> None:
    consumer.on("note", version=2)(one)
    consumer.on("order.*")(plain)
    consumer.fallback(two)
    consumer.upcast("note", from_version=1)(lambda data: data)
    wrapped = consumer.handlers.wrapped(lambda handler: partial(handler.function))
    for event_type, version in (("note", 1), ("note", 2), ("note", 3), ("order.paid", 1), ("else", 1)):
        here, there = consumer.handlers.resolve(event_type, version), wrapped.resolve(event_type, version)
        assert type(here) is type(there)
    assert [handler.name for handler in wrapped.all()] == [handler.name for handler in consumer.handlers.all()]
    assert wrapped.patterns() == consumer.handlers.patterns()

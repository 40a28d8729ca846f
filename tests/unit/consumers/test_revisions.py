"""The revision of a handler, and what its rise does: what is refused when it is registered, and what an event's is."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from consumers import ConfigurationError, Consumer, Missing, Received


async def one(event: Received[Any]) -> None:
    """A handler."""


@pytest.fixture
def consumer() -> Consumer:
    return Consumer("billing", dedup="inbox")


class TestARevision:
    """Of a handler."""

    def test_is_1_and_its_rise_does_nothing_unless_somebody_says_otherwise(self, consumer: Consumer) -> None:
        consumer.on("order.paid")(one)
        consumer.on("order.sent", revision=3, on_rise="failed")(one)
        said = {each.pattern: (each.revision, each.on_rise) for each in consumer.handlers.all()}
        assert said == {"order.paid": (1, "nothing"), "order.sent": (3, "failed")}

    def test_is_the_one_of_the_handler_that_the_event_is_for(self, consumer: Consumer) -> None:
        consumer.on("order.*", revision=2)(one)
        consumer.on("order.paid", revision=3)(one)
        consumer.on("order.paid", version=3, revision=4)(one)
        found = [
            consumer.handlers.revision_of(event_type, version)
            for event_type, version in (("order.sent", 7), ("order.paid", 1), ("order.paid", 2), ("order.paid", 9))
        ]
        assert found == [2, 3, 4, 4]
        assert consumer.handlers.revision_of("invoice.sent", 1) is None

    @pytest.mark.parametrize("revision", [0, -1, True, 1.0, "2", 2**31])
    def test_is_a_number_from_1_on(self, consumer: Consumer, revision: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"^'order\.paid' has revision=.*; write a number from 1 on"):
            consumer.on("order.paid", revision=revision)

    @pytest.mark.parametrize("on_rise", ["everything", None, True, ""])
    def test_does_one_of_three_things_when_it_rises(self, consumer: Consumer, on_rise: Any) -> None:
        with pytest.raises(ConfigurationError, match="choose one of 'nothing', 'failed', 'all'"):
            consumer.on("order.paid", revision=2, on_rise=on_rise)

    @pytest.mark.parametrize("dedup", ["claim", "mark", "none"])
    def test_needs_an_inbox(self, dedup: Any) -> None:
        consumer = Consumer("billing", dedup=dedup)
        with pytest.raises(ConfigurationError, match=f"dedup='{dedup}', which does not keep events to handle again"):
            consumer.on("order.paid", revision=2)
        with pytest.raises(ConfigurationError, match="leave revision and on_rise out"):
            consumer.on("order.paid", on_rise="all")
        consumer.on("order.paid")(one)


class TestWhatTellsMissingEvents:
    """Is a function that can be called as it is going to be."""

    def test_is_registered_once(self, consumer: Consumer) -> None:
        @consumer.reconcile
        async def tell(position: Any, page: int) -> tuple[list[Missing], Any]:
            return [], None

        assert consumer.tell_missing is tell
        with pytest.raises(ConfigurationError, match="has a function for reconcile already"):
            consumer.reconcile(tell)

    def test_needs_an_inbox(self) -> None:
        async def tell(position: Any, page: int) -> tuple[list[Missing], Any]:
            return [], None

        with pytest.raises(ConfigurationError, match="dedup='claim', and nothing to reconcile"):
            Consumer("billing").reconcile(tell)

    def test_is_asynchronous_and_takes_a_position_and_a_page(self, consumer: Consumer) -> None:
        def plain(position: Any, page: int) -> tuple[list[Missing], Any]:
            return [], None

        async def generator(position: Any, page: int) -> AsyncIterator[Missing]:
            yield Missing(event_id="", event_type="", data=None, occurred_at=None)  # type: ignore[arg-type]

        async def short(position: Any) -> tuple[list[Missing], Any]:
            return [], None

        wrong: list[Any] = [plain, generator, None]
        for function in wrong:
            with pytest.raises(ConfigurationError, match="has to be an async def"):
                consumer.reconcile(function)
        narrow: Any = short
        with pytest.raises(ConfigurationError, match=r"has to take \(position, page\), and takes \(position: Any\)"):
            consumer.reconcile(narrow)

"""The pictures of the page are SVG that any browser reads."""

import dataclasses
from xml.etree import ElementTree as ET

import pytest

from benchmarks.plots import drawn
from benchmarks.record import Run
from tests.support.benchmarks import RUN

SVG = "{http://www.w3.org/2000/svg}"
NOTHING = dataclasses.replace(RUN, figures=())


def parsed(picture: str) -> ET.Element:
    """As a browser sees it."""
    return ET.fromstring(picture)  # noqa: S314 -- our own text


def texts(picture: str) -> list[str]:
    """What it says."""
    return [element.text or "" for element in parsed(picture).iter(f"{SVG}text")]


@pytest.mark.parametrize("run", [RUN, NOTHING], ids=["measured", "not measured"])
@pytest.mark.parametrize("name", list(drawn(RUN)))
def test_every_picture_is_well_formed(run: Run, name: str) -> None:
    """Also of a run that has measured nothing of it, which the picture says then."""
    picture = drawn(run)[name]

    assert parsed(picture).tag == f"{SVG}svg"
    assert ("not measured" in texts(picture)) == (not run.of(name.removesuffix(".svg")))


def test_names_are_text_and_not_markup() -> None:
    """A peer may be called whatever it likes."""
    assert "slow & <steady> (Python)" in texts(drawn(RUN)["peers.svg"])


def test_a_bar_is_as_long_as_its_median_and_has_whiskers() -> None:
    """The scale ends with the greatest value of all."""
    found = parsed(drawn(RUN)["drain.svg"])
    limit, relay = (float(bar.attrib["width"]) for bar in found.iter(f"{SVG}rect"))

    assert limit == relay > 0
    assert len(list(found.iter(f"{SVG}path"))) == 2


def test_the_fastest_peer_comes_first() -> None:
    """And the relay is told from the others by its colour."""
    found = parsed(drawn(RUN)["peers.svg"])

    assert [bar.attrib["class"] for bar in found.iter(f"{SVG}rect")] == ["ours", "theirs"]


def test_latencies_are_grouped_by_their_rate() -> None:
    """In the order in which they were measured."""
    said = texts(drawn(RUN)["latency.svg"])

    assert [text for text in said if text.endswith("/s")] == ["200/s", "2,000/s"]
    assert said.count("relay p99") == 2

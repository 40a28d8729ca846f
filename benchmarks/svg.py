"""Bars as SVG that is read in a bright page and in a dark one; a page shows it without any program."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _LABELS, _VALUES, _EDGE = 780, 240, 90, 12
_ROW, _BAR, _HEAD, _TITLE = 26, 16, 28, 40
_SCALE = _WIDTH - _LABELS - _VALUES - 2 * _EDGE

_STYLE = """<style>
text { font-family: sans-serif; font-size: 13px; fill: #1f2328 }
.title { font-size: 15px; font-weight: bold }
.head, .unit { fill: #59636e }
.ours { fill: #2f6fd0 } .theirs { fill: #9aa4af }
.spread { stroke: #1f2328; stroke-width: 1.5; fill: none }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .head, .unit { fill: #9198a1 } .ours { fill: #5393f5 } .theirs { fill: #6b747e }
.spread { stroke: #e6edf3 }
}
</style>"""


@dataclass(frozen=True)
class Bar:
    """A median, between the least and the greatest value."""

    label: str
    value: float
    least: float
    most: float
    written: str
    ours: bool = True


@dataclass(frozen=True)
class Group:
    """Bars that belong together, under a word of their own if there is one."""

    bars: Sequence[Bar]
    head: str = ""


def bars(title: str, unit: str, groups: Sequence[Group]) -> str:
    """A picture of the bars, all of them on one scale."""
    most = max((bar.most for group in groups for bar in group.bars), default=0.0) or 1.0
    top, drawn = float(_TITLE), [_text(_EDGE, 22, title, "title"), _text(_WIDTH - _EDGE, 22, unit, "unit", "end")]
    for group in groups:
        if group.head:
            drawn.append(_text(_EDGE, top + 18, group.head, "head"))
            top += _HEAD
        for bar in group.bars:
            drawn.extend(_bar(bar, top, _SCALE / most))
            top += _ROW
    if not groups:
        drawn.append(_text(_EDGE, top + 18, "not measured", "head"))
        top += _HEAD
    return "\n".join([_opened(title, top + _EDGE), _STYLE, *drawn, "</svg>"]) + "\n"


def _opened(title: str, height: float) -> str:
    box = f'viewBox="0 0 {_WIDTH} {height:g}" width="{_WIDTH}" height="{height:g}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img" aria-label="{escape(title)}">'


def _bar(bar: Bar, top: float, scale: float) -> Iterator[str]:
    left, middle = _EDGE + _LABELS, top + _ROW / 2
    yield _text(left - 8, middle + 4.5, bar.label, anchor="end")
    shape = f'x="{left}" y="{middle - _BAR / 2:g}" width="{bar.value * scale:.1f}" height="{_BAR}" rx="2"'
    yield f'<rect class="{"ours" if bar.ours else "theirs"}" {shape}/>'
    begin, end = left + bar.least * scale, left + bar.most * scale
    ends = "".join(f"M{x:.1f} {middle - 4:g}v8" for x in (begin, end))
    yield f'<path class="spread" d="M{begin:.1f} {middle:g}H{end:.1f}{ends}"/>'
    yield _text(end + 8, middle + 4.5, bar.written)


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    attributes = "".join(f' {name}="{value}"' for name, value in (("class", kind), ("text-anchor", anchor)) if value)
    return f'<text x="{x:.1f}" y="{y:g}"{attributes}>{escape(words)}</text>'

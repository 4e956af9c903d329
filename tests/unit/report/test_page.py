"""The page as a structure: whole, self-contained, unbreakable by names, readable in every corner case."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from gpuyard.job_sizes import SizeRanges
from gpuyard.sim.report import render
from gpuyard.sim.result import Result, Samples
from unit.report.synthetic import DAY_MS, four_policies, simulate, week

HOSTILE = [
    "<script>alert(1)</script>",
    '" onload="alert(1)',
    "a&b",
    "\u202egnp.exe\x00",
    "c'd",
    "]]></style>",
]
PLOTS = ["utilisation", "queue", "waits", "slowdown", "sizes", "tenants"]
FACTS = [("trace", "week.csv"), ("GPUs", "128")]


class Page(HTMLParser):
    """Checks that tags are balanced; keeps elements, their attributes and the text inside."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.words: list[tuple[str, str]] = []
        self.feed(html)
        self.close()
        assert [] == self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, {name: value or "" for name, value in attrs}))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.open.pop()

    def handle_data(self, data: str) -> None:
        self.words.append((self.open[-1] if self.open else "", data))

    def texts(self, tag: str) -> list[str]:
        return [data for inside, data in self.words if inside == tag]

    def all_text(self) -> str:
        return " ".join(data for inside, data in self.words if inside not in {"script", "style"})


@pytest.fixture(scope="module")
def four() -> list[Result]:
    return four_policies()


@pytest.fixture(scope="module")
def html(four: list[Result]) -> str:
    return render(four, "A week", FACTS, command="yard simulate week.csv --policy fifo", version="9.9.9")


def one_sample() -> Result:
    result = simulate("fifo", week(1))
    old = result.samples
    result.samples = Samples(
        *(
            column[:1]
            for column in (old.at_ms, old.used_milli, old.up_milli, old.waiting, old.stranded_milli)
        ),
        [column[:1] for column in old.tenant_used_milli],
        [column[:1] for column in old.tenant_entitled_milli],
    )
    return result


CORNERS = {
    "no policy": list,
    "nothing at all": lambda: [Result("fifo", 0)],
    "no samples": lambda: [Result("fifo", 8000, ["a"]), Result("fair", 8000, ["a"])],
    "one policy": lambda: [simulate("fifo", week(50))],
    "one sample": lambda: [one_sample()],
    "no job ended": lambda: [simulate("fifo", week(50), stop_ms=10)],
    "one ran, one did not": lambda: [simulate("fifo", week(50)), Result("fair", 128_000)],
    "nine policies": lambda: [simulate("fair", week(30, seed=seed)) for seed in range(9)],
}


@pytest.mark.parametrize("corner", CORNERS)
def test_every_corner_gives_a_whole_page(corner: str) -> None:
    html = render(CORNERS[corner](), "A week", FACTS)

    page = Page(html)
    assert "nan" not in re.findall(r"[a-z]+", page.all_text().lower())
    assert "None" not in page.all_text()
    assert not re.search(r'"[^"]*\b(nan|inf|None)\b[^"]*"', html.split("<main>")[1].split("<script>")[0])


def test_the_page_has_every_part(html: str) -> None:
    page = Page(html)

    assert PLOTS == [attrs["id"] for tag, attrs in page.seen if tag == "figure"]
    assert ["A week"] == page.texts("h1")
    assert ["yard simulate week.csv --policy fifo"] == page.texts("code")
    assert "9.9.9" in page.all_text()
    assert "week.csv" in page.texts("dd")
    headings = page.texts("h2")
    assert any(
        re.match(r"\w+ keeps [\d.]+ % of the GPUs busy, \w+ [\d.]+ %", each) for each in headings
    ) or any("policies keep" in each for each in headings)
    for metric in ("utilisation", "fragmentation", "fairness", "slowdown"):
        assert metric in page.texts("dt")
    assert all(attrs.get("aria-label") for tag, attrs in page.seen if tag == "svg")
    assert len(page.texts("title")) > 20


def test_the_page_loads_nothing(html: str) -> None:
    page = Page(html)

    assert "http://" not in html
    assert "https://" not in html
    assert not re.search(r"url\(|@import|\bfetch\(|XMLHttpRequest|WebSocket|innerHTML", html)
    loads = {"src", "href", "xlink:href", "srcset", "action", "data"}
    assert [] == [attrs for _, attrs in page.seen if loads & set(attrs)]
    assert not {"link", "img", "iframe", "object", "embed"} & {tag for tag, _ in page.seen}
    (policy,) = [a["content"] for _, a in page.seen if a.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in policy


def test_the_same_input_gives_the_same_bytes(four: list[Result], html: str) -> None:
    again = render(four, "A week", FACTS, command="yard simulate week.csv --policy fifo", version="9.9.9")

    assert html == again


def test_four_policies_stay_small() -> None:
    results = four_policies(2500)
    for result in results:
        # The worst case for size: every point differs from its neighbour.
        for index in range(len(result.samples.at_ms)):
            result.samples.used_milli[index] = (index * 7919) % 128_000
            result.samples.waiting[index] = (index * 104_729) % 9973

    html = render(results, "A week")

    assert len(html.encode()) < 300_000
    for path in re.findall(r' d="([^"]*)"', html):
        assert len(re.findall("[HL]", path)) <= 401


def test_names_cannot_break_the_page() -> None:
    result = simulate("fair", week(200, capacity=16), tenants=HOSTILE, capacity=16)
    result.policy = "<img src=x onerror=alert(1)>"
    calm = simulate("fifo", week(200, capacity=16), tenants=HOSTILE, capacity=16)
    bad = "</title></style></script><script>alert(1)</script>"

    html = render([result, calm], bad, [(bad, bad)], command=bad, version=bad)

    page = Page(html)
    assert 1 == sum(tag == "script" for tag, _ in page.seen)
    assert not any(tag == "img" for tag, _ in page.seen)
    assert not any(name.startswith("on") for _, attrs in page.seen for name in attrs)
    assert bad in page.texts("h1")
    shown = page.texts("bdi")
    assert {"<script>alert(1)</script>", '" onload="alert(1)', "a&b", "c'd", "]]></style>"} <= set(shown)
    assert "\u202e" not in html
    assert "\x00" not in html


def test_many_tenants_are_drawn_as_twelve_and_the_others() -> None:
    tenants = [f"org/team-{index}" for index in range(200)]
    results = [simulate(policy, week(800, tenants=200), tenants=tenants) for policy in ("fifo", "fair")]

    names = [
        name for name in Page(render(results, "A week")).texts("bdi") if "org/" in name or "others" in name
    ]

    assert 13 == len(names)
    assert re.fullmatch(r"\d+ others", names[-1])


def test_an_interrupted_run_says_so_and_is_not_compared() -> None:
    stopped = simulate("fifo", week(600), stop_ms=2 * DAY_MS)
    page = Page(render([stopped, simulate("fair", week(600))], "A week"))

    assert "Interrupted. " in page.texts("b")
    assert "of 600 with fifo were still waiting or running" in page.all_text()
    assert "instead of" not in page.all_text()
    assert not any(attrs.get("class") == "best" for _, attrs in page.seen)


def test_a_full_run_is_compared_and_marked(html: str) -> None:
    page = Page(html)

    assert 3 == page.all_text().count("instead of")
    assert any(attrs.get("class") == "best" for _, attrs in page.seen)
    assert not any(attrs.get("class") == "warning" for _, attrs in page.seen)


def test_dates_are_shown_where_the_start_is_known(four: list[Result]) -> None:
    page = Page(render(four, "A week", origin_ms=1_709_251_200_000))

    assert {"1 Mar", "5 Mar"} <= set(page.texts("span"))


def test_everything_on_a_plot_lies_within_it(html: str) -> None:
    for svg in re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL):
        height = float(re.search(r'viewBox="0 0 1000 (\d+)"', svg)[1])
        for path in re.findall(r'class="(?:line|fill|quiet)" d="([^"]*)"', svg):
            for kind, first, second in re.findall(r"([MLHV])([-\d.]+)(?: ([-\d.]+))?", path):
                assert 0 <= float(first) <= (height if kind == "V" else 1000)
                assert not second or 0 <= float(second) <= height


def test_a_phone_is_told_that_a_table_goes_on_and_words_are_explained(html: str) -> None:
    page = Page(html)
    boxes = [attrs for _tag, attrs in page.seen if attrs.get("class") == "scroll"]
    hints = [attrs for _tag, attrs in page.seen if attrs.get("class") == "more"]
    assert (3, 3) == (len(boxes), len(hints))
    assert 3 == page.all_text().count("Swipe sideways: there are more columns")
    assert "95 of 100 jobs wait no longer" in page.texts("small")
    assert "from submission to end" in page.texts("small")
    assert "p95 slowdown" not in html
    assert re.search(r"Utilisation is over the same [\d.]+ d for all policies", html)


def test_every_size_of_job_has_its_figures_under_every_policy(four: list[Result]) -> None:
    html = render(four, "week", sizes=SizeRanges([4]))
    page = Page(html)
    for size in ("up to 4", "5+", "all"):
        assert len(four) == html.count(f'<th scope="row">{size}</th>') + html.count(
            f'<th scope="row"><span class="hint">{size}</span></th>'
        )
    assert any(re.match(r"A GPU-hour of work waits .+ with \w+, ", each) for each in page.texts("h2"))
    assert "by work" in page.texts("dt")


def test_one_size_needs_no_table_of_sizes() -> None:
    small = simulate("fifo", [task for task in week(100) if task.gpu_milli <= 1000])
    assert "A GPU-hour of work" not in render([small], "week")


def test_waits_and_cost_of_every_team_stand_beside_each_other(four: list[Result]) -> None:
    page = Page(render([replace(result, price_micro_usd_h=2_000_000) for result in four], "week"))
    text = page.all_text()
    for team in four[0].tenants:
        assert text.count(f" {team} ") >= len(four)
    assert "waits longest: " in text
    assert re.search(r"\$[\d,]+", text)

"""What a reader meets first: no link that leads nowhere, every how-to reachable, and `yard` on the PATH."""

import re
from html import unescape
from pathlib import Path

import pytest
from textual.binding import Binding

from gpuyard.cli.line.commands import ENTRIES
from gpuyard.cli.top.app import Top

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def links(page: Path) -> list[tuple[str, str]]:
    """Files and sections that a page points to."""
    found = re.findall(r"\]\(([^)#\s]*)(#[^)\s]*)?\)", page.read_text(encoding="utf-8"))
    return [(file, section) for file, section in found if "://" not in file]


def sections(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {"#" + re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for file, section in links(page):
        target = (page.parent / file) if file else page
        assert target.exists(), file
        assert not section or section in sections(target), f"{file}{section}"


def test_who_is_a_person() -> None:
    """A sentence is about one of our nouns. "Who" stands for people alone, after their noun; "whoever" for nothing."""
    texts = [page for page in PAGES if page.name != "CHANGELOG.md"] + sorted((ROOT / "src").rglob("*.py"))
    lines = [
        (f"{text.relative_to(ROOT)}:{number}: {line.strip()[:80]}", line)
        for text in texts
        for number, line in enumerate(text.read_text(encoding="utf-8").splitlines(), start=1)
    ]
    assert [] == [where for where, line in lines if re.search(r"\bWhoever\b", line)]
    assert [] == [where for where, line in lines if where.startswith("src") and "whoever" in line]
    alone = r"(?i)(?<!person )(?<!people )(?<!user )(?<!users, )(?<!users )(?<!anybody )(?<!anyone )\bwho\b"
    assert len([where for where, line in lines if where.startswith("src") and re.search(alone, line)]) < 40


def test_the_glossary_names_what_there_is_in_the_source() -> None:
    """A word of the glossary stands beside its name in code: after a rename the page has to follow."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w[^|]*) \| [A-Z][^|]*\. \| `(\w+)` \|$", text, re.MULTILINE)
    assert len(rows) == text.count("\n| ") - text.count("\n| word | means | in code |")
    assert len(rows) >= 60
    words = [word for word, _name in rows]
    assert len(words) == len(set(words))
    names = {
        name
        for module in (ROOT / "src").rglob("*.py")
        for name in re.findall(
            r"^\s*(?:class |def |self\.)?(\w+)(?=[(:]| =)", module.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    assert [] == [f"{word}: {name}" for word, name in rows if name not in names]


@pytest.mark.parametrize("index", ["README.md", "docs/how-to/README.md"])
def test_every_how_to_is_linked(index: str) -> None:
    page = ROOT / index
    linked = {(page.parent / file).resolve() for file, _section in links(page) if file}
    missing = [each.name for each in (ROOT / "docs" / "how-to").glob("*.md") if each.resolve() not in linked]
    assert [] == sorted(set(missing) - {"README.md"})


def test_every_decision_is_listed() -> None:
    listed = re.findall(
        r"^\[\d+ [^]]*\]\(docs/adr/([^)]*)\)", (ROOT / "ARCHITECTURE.md").read_text("utf-8"), re.M
    )
    assert sorted([each.name for each in (ROOT / "docs" / "adr").glob("*.md")]) == listed


def test_readme_says_how_to_install_what_is_alpha_and_which_engine_only_simulates() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = (
        (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[project.optional-dependencies]")[2]
    )
    extras = re.findall(r"^(\w+) = \[", named, re.MULTILINE)
    for extra in set(extras[: extras.index("dev")]):
        assert f"`gpuyard[{extra}]`" in text, extra
    assert "gpuyard is alpha" in text
    assert re.search(r"\| `kubernetes` \| \*simulates only\*", text)
    assert "`--host-process`" in text


def test_setup_ends_with_the_line_that_puts_yard_on_the_path() -> None:
    """The demo says it by itself, before what to type next: `path_line`."""
    assert "export PATH=" in (ROOT / "scripts" / "setup").read_text(encoding="utf-8").splitlines()[-1]


def test_the_picture_of_top_has_the_keys_of_today() -> None:
    picture = (ROOT / "docs/pictures/top.svg").read_text(encoding="utf-8")
    texts = [
        (float(y), float(x), unescape(text).strip())
        for x, y, text in re.findall(r'<text [^>]*x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)<', picture)
    ]
    foot = max(y for y, _x, _text in texts)
    seen = [text for y, _x, text in sorted(texts) if y == foot and text]
    keys = [each for each in Top.BINDINGS if isinstance(each, Binding) and each.show]
    assert {"open", *[each.description for each in keys]} == set(seen[1::2]), "scripts/picture-top draws it"


def test_commands_that_pages_and_messages_name_are_there() -> None:
    """waits.md sent people to `yard idle`, which no release had. A page may bring a command of its own."""
    texts = [page for page in PAGES if page.name != "CHANGELOG.md"]
    texts += [*(ROOT / "src").rglob("*.py"), *(ROOT / "console" / "src").rglob("*.svelte")]
    named = re.compile(r"[`'](?:sudo )?yard ([a-z][a-z-]*)")
    assert ["idle"] == named.findall("| `yard efficiency`, `yard idle` |")[1:]
    missing = {
        (str(text.relative_to(ROOT)), name)
        for text in texts
        for content in [text.read_text(encoding="utf-8")]
        for name in named.findall(content)
        if name not in ENTRIES and not re.search(rf"^{name} = \"", content, re.MULTILINE)
    }
    assert set() == missing


@pytest.mark.parametrize(
    ("page", "outlived"),
    [
        ("docs/how-to/sharing.md", "is not kept out"),
        ("docs/security.md", "size is not limited, and nothing removes old ones"),
    ],
)
def test_no_page_says_that_the_yard_lacks_what_it_has(page: str, outlived: str) -> None:
    """Slices are kept apart by the fence, and `yard prune` removes images: the pages went on denying it."""
    assert outlived not in (ROOT / page).read_text(encoding="utf-8")


def test_the_environments_of_the_readme_lie_outside_the_checkout() -> None:
    """A reader who cloned into their home has the checkout in ~/gpuyard: an environment there is a part of it."""
    places = re.findall(r"-m venv (\S+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert places
    assert [] == [place for place in places if not re.match(r"~/\.|/", place)]


def test_no_script_that_is_shown_saves_by_emptying_what_was_saved() -> None:
    """`echo > file` empties it first: a job that is killed then has nothing to go on from."""
    texts = [
        *PAGES,
        *(ROOT / "src").rglob("*.py"),
        *[path for path in (ROOT / "examples").iterdir() if path.is_file()],
    ]
    straight = re.compile(
        r"(?<!>)>\|?\s*[\"']?\$\{?YARD_CHECKPOINT_FILE\}?[\"']?(?=[\s;&|)]|$)", re.MULTILINE
    )
    assert straight.search('echo "$step" > "$YARD_CHECKPOINT_FILE"\n')
    assert not straight.search('echo "$step" >"$YARD_CHECKPOINT_FILE".new\n')
    shown = [text for text in texts if straight.search(text.read_text(encoding="utf-8"))]
    assert [] == [str(text.relative_to(ROOT)) for text in shown]

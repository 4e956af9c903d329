"""What YAML can hold against us is refused with a place, by both of PyYAML's parsers in the same words."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gpuyard import config
from gpuyard.config import document
from gpuyard.config.reading import load

Refusals = Callable[[str], list[str]]

NO_KEY = "no key can stand here; check the indentation of this line and the one above, or quote the text"
FITS_NOT = "this does not fit the lines above it; check its indentation and the quotes before it"
NOT_CLOSED = "the quote that opens here is never closed"
OPEN_LIST = "the '[' here is never closed, or a ',' is missing after one of its items"
OPEN_MAP = "the '{' here is never closed, or a ',' is missing after one of its entries"

# A whole text, and the only problem it is refused with.
TEXTS = [
    ("", ": the file is empty; begin it with 'version: 1'"),
    ("# nothing yet\n", ": the file is empty; begin it with 'version: 1'"),
    ("---\n", ": the file is empty; begin it with 'version: 1'"),
    ("~", ": the file is empty; begin it with 'version: 1'"),
    ("- a", ":1:1: the file must be a mapping that begins with 'version: 1', not a list"),
    ("\n  text", ":2:3: the file must be a mapping that begins with 'version: 1', not the text 'text'"),
    ("version: 1\n---\nversion: 1\n", ":2:1: a second document begins here; keep one in the file"),
    ("version: 1\n clusters: 2", f":2:10: {NO_KEY}"),
    ("version: 1: 2", f":1:11: {NO_KEY}"),
    ("a:\n  b: 1\n c: 2", f":3:2: {FITS_NOT}"),
    ("a: 'it's'", f":1:8: {FITS_NOT}"),
    ("a: 1\nb: 'x\nc: 1\n", f":2:4: {NOT_CLOSED}"),
    ('a: 1\nb: "x\nc: 1\n', f":2:4: {NOT_CLOSED}"),
    ("a: [1\nb: 2", f":1:4: {OPEN_LIST}"),
    ("a: {x: 1, y", f":1:4: {OPEN_MAP}"),
    ("a: {x: 1 y: 2}\nb: 1", f":1:4: {OPEN_MAP}"),
    ("a: 1\nclusters\nb: 1\n", ":2:1: a key without a ':'; write 'key: value'"),
    ("{", ":1:2: a value is missing here, or a '[' or '{' before it is never closed"),
    ("a: [b, {c: [", ":1:13: a value is missing here, or a '[' or '{' before it is never closed"),
    ("a: ]", ":1:4: a value is missing here; check the brackets and commas around it"),
    ("a: @b", ":1:4: a value cannot begin with '@'; put it in quotes"),
    ("a: `b`", ":1:4: a value cannot begin with '`'; put it in quotes"),
    (
        'a: "C:\\dir"',
        ":1:4: an unknown escape in double quotes; write '\\\\' for a backslash, or use single quotes",
    ),
    ("a:\n\tb: 1", ":2:1: a tab in the indentation; use spaces"),
    ("a:\n  b: 1\n \tc: 1", ":3:2: a tab in the indentation; use spaces"),
    ("a: !x!y b", ":1:4: tags are not allowed; remove it"),
    ("a: *x", ":1:4: alias '*x' has no anchor '&x' above it"),
    ("a: &a [*a]", ":1:8: alias '*a' stands inside of what it refers to"),
    ("a: &a {b: {c: *a}}", ":1:15: alias '*a' stands inside of what it refers to"),
    ("a: 1\nb: \x07", ":2:4: the character U+0007 is not allowed here; remove it"),
    ("a: \x00", ":1:4: the character U+0000 is not allowed here; remove it"),
    ("a: 1 # \u2028 b", ":1:8: the character U+2028 is not allowed here; remove it"),
    ("a: \ud800", ":1:4: the character U+D800 is not allowed here; remove it"),
    ("[" * 10_000, ":1:33: nested deeper than 32 levels, which no key of this file needs"),
    ("- " * 10_000, ":1:65: nested deeper than 32 levels, which no key of this file needs"),
    (
        "a: &a " + "[" * 20 + "]" * 20 + "\nb: " + "[" * 20 + "*a" + "]" * 20,
        ":2:24: nested deeper than 32 levels, which no key of this file needs",
    ),
    (
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"{new}: &{new} [{','.join(['*' + old] * 9)}]\n"
            for old, new in zip("abcdefg", "bcdefgh", strict=True)
        ),
        ":4:20: aliases multiply to 5009 values; write them out",
    ),
    (
        "a: &a {"
        + ",".join(f"k{n}: 1" for n in range(1000))
        + "}\n"
        + "".join(f"m{n}: {{<<: *a}}\n" for n in range(1000)),
        ":101:11: aliases expand to more than 100000 values; write them out",
    ),
    (" " * (8 * 1024 * 1024 + 1), ": the file is larger than 8 MiB, the limit; is it the right one?"),
]


@pytest.fixture(params=["CSafeLoader", "SafeLoader"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(yaml, request.param):
        pytest.skip("this PyYAML was built without libyaml")
    monkeypatch.setattr(document, "_LOADER", getattr(yaml, request.param))


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(("text", "problem"), TEXTS, ids=[repr(text[:20]) for text, _ in TEXTS])
def test_texts_that_are_no_configuration(text: str, problem: str, refusals: Refusals) -> None:
    assert [f"yard.yaml{problem}"] == refusals(text)


# What is added to a valid file on line 6, and the problem it is refused with.
ADDED = [
    (
        "version: 1",
        "6:1: duplicate key 'version' at the top level; it is already on line 1, remove one of them",
    ),
    (
        "tenants:\n  a: {}\n  b: {}\n  a: {weight: 2}\n",
        "9:3: duplicate key 'a' in 'tenants'; it is already on line 7, remove one of them",
    ),
    (
        "tenants: {a: {weight: 1, 'weight': 2}}",
        "6:26: duplicate key 'weight' in tenant 'a'; it is already on line 6, remove one of them",
    ),
    (
        "tenants: !!python/object:os.system {}",
        "6:10: the tag 'tag:yaml.org,2002:python/object:os.system' is not allowed; remove it",
    ),
    ("policy: !!str fair", "6:9: the tag 'tag:yaml.org,2002:str' is not allowed; remove it"),
    ("policy: ! fair", "6:9: the tag '!' is not allowed; remove it"),
    ("tenants: {[a, b]: {}}", "6:11: a key must be a single word, not a list or a mapping"),
    ("tenants: {a: {<<: 3}}", "6:15: '<<' must refer to a mapping, as in '<<: *name'"),
    ("tenants: {a: {<<: [3]}}", "6:15: '<<' must refer to a mapping, as in '<<: *name'"),
    (
        "tenants:\n  a: &a {wieght: 3}\n  b: {<<: *a, lend: 1}\n",
        "7:10: unknown key 'wieght' in tenant 'a'; did you mean 'weight'?",
    ),
]


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(("added", "problem"), ADDED, ids=[added[:40] for added, _ in ADDED])
def test_yaml_that_is_not_for_us(added: str, problem: str, fleet: str, refusals: Refusals) -> None:
    assert f"yard.yaml:{problem}" == refusals(fleet + added)[0]


def test_many_repeated_keys_end_the_search(fleet: str, refusals: Refusals) -> None:
    lines = refusals(fleet + "policy: fair\n" * 1000)

    assert 51 == len(lines)
    assert "yard.yaml:7:1: duplicate key 'policy' at the top level" == lines[0].partition(";")[0]


def test_windows_line_ends_and_a_byte_order_mark_count_like_others(fleet: str, refusals: Refusals) -> None:
    text = "\ufeff" + (fleet + "earmark: 5\n").replace("\n", "\r\n")

    assert ["yard.yaml:6:10"] == [line.partition(": ")[0] for line in refusals(text)]


def refused_file(path: Path | str) -> str:
    with pytest.raises(config.ConfigError) as caught:
        load(path)
    return str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "yard.yaml"

    assert f"{path}: no such file; give the path of a yard.yaml" == refused_file(path)


def test_a_directory(tmp_path: Path) -> None:
    assert f"{tmp_path}: is a directory; give the path of a file" == refused_file(tmp_path)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    # Root may read everything, so a mode of 000 would not show it.
    monkeypatch.setattr(Path, "open", refuse)

    assert "yard.yaml: may not be read; check the file's permissions" == refused_file("yard.yaml")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("x" * 5000, "cannot be read: File name too long"),
        ("a\0b", "cannot be read: embedded null byte"),
        ("/dev/null/yard.yaml", "cannot be read: Not a directory"),
    ],
    ids=["long", "null", "below a file"],
)
def test_a_path_that_cannot_be_one(path: str, why: str) -> None:
    assert f"{path}: {why}" == refused_file(path)


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "yard.yaml"
    path.write_bytes(b"#" * (8 * 1024 * 1024 + 1))

    assert f"{path}: the file is larger than 8 MiB, the limit; is it the right one?" == refused_file(path)


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"\xff\xfea\0", "1:1: byte 1 of the file, 0xff,"),
        (b"version: 1\n# caf\xc3\xa9 caf\xe9\n", "2:11: byte 23 of the file, 0xe9,"),
        (b"version: 1\n# cut \xe2\x82", "2:7: byte 18 of the file, 0xe2,"),
    ],
    ids=["utf-16", "latin-1", "cut"],
)
def test_bytes_that_are_no_text(content: bytes, place: str, tmp_path: Path) -> None:
    path = tmp_path / "yard.yaml"
    path.write_bytes(content)

    assert f"{path}:{place} is not UTF-8; save the file as UTF-8" == refused_file(path)

"""Whatever a file holds, it is read or refused with `ConfigError`; nothing else escapes."""

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuyard import config
from gpuyard.config.reading import load, loads

EXAMPLE = (Path(__file__).resolve().parents[3] / "examples" / "yard.yaml").read_text(encoding="utf-8")
LINES = EXAMPLE.splitlines(keepends=True)

LINE = re.compile(r"yard\.yaml(:[1-9][0-9]*:[1-9][0-9]*)?: \S.*")

SNIPPETS = st.sampled_from(
    [
        *("\t", "\n", "\0", "\ufeff", "\u2028", "é", "# ", "---\n", "? ", ": ", "- ", "'", '"', *"[]{}"),
        *("&a ", "*a", "<<: ", "<<: *a", "!!str ", "null", "~", "true", ".nan", "-1", "0", "1e9", "9" * 20),
        *("8 x H100", "1T", "7d", "parent: interns", "{total: 1}"),
    ]
)

# A vocabulary of the file itself, so that a good part of what is made gets past the schema.
WORDS = st.sampled_from(sorted(set(re.findall(r"[\w.-]+", EXAMPLE))))
SCALARS = (
    WORDS
    | st.integers(-5, 100)
    | st.floats()
    | st.booleans()
    | st.none()
    | st.sampled_from(["8 x H100", "1h30m", "2G"])
)


# The first example imports YAML and pydantic, which takes longer than an example may.
# The file of the test that writes one is overwritten by each example.
PATIENT = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def outcome(text: str) -> config.Config | config.ConfigError:
    try:
        return loads(text, "yard.yaml")
    except config.ConfigError as error:
        return error


def read_or_refused(text: str) -> None:
    result = outcome(text)
    if isinstance(result, config.Config):
        # A local cluster without pools is the machine itself.
        assert result.pools or any(not cluster.pools for cluster in result.clusters.values())
        return
    lines = str(result).splitlines()
    assert lines
    assert [] == [line for line in lines if not LINE.fullmatch(line)]
    # A place that is named exists, so that editors can jump to it.
    there = re.split(r"\r\n|\r|\n", text)
    places = [problem.place for problem in result.problems if problem.place.line > 0]
    assert [] == [place for place in places if place.line > len(there)]
    assert [] == [place for place in places if place.column > len(there[place.line - 1]) + 1]


@PATIENT
@given(st.text())
def test_any_text(text: str) -> None:
    read_or_refused(text)


@PATIENT
@given(st.text(alphabet="ab:- \n\t[]{}'\"&*!|>#%@,?<~0.", max_size=60))
def test_any_punctuation(text: str) -> None:
    read_or_refused(text)


@PATIENT
@given(st.binary(max_size=80))
def test_any_bytes(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "yard.yaml"
    path.write_bytes(content)
    # So few bytes hold no valid file: the smallest has about a hundred.
    with pytest.raises(config.ConfigError) as caught:
        load(path)

    assert str(caught.value).startswith(f"{path}:")


@PATIENT
@given(st.data())
def test_a_mutated_example(data: st.DataObject) -> None:
    text = EXAMPLE
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        removed = data.draw(st.integers(0, 12))
        text = text[:at] + data.draw(SNIPPETS | WORDS | st.text(max_size=3)) + text[at + removed :]
    read_or_refused(text)


@PATIENT
@given(st.data())
def test_an_example_with_lines_moved_repeated_and_lost(data: st.DataObject) -> None:
    lines = list(LINES)
    for _ in range(data.draw(st.integers(1, 5))):
        taken = data.draw(st.integers(0, len(lines) - 1))
        line = lines[taken]
        if data.draw(st.booleans()):
            del lines[taken]
        lines.insert(data.draw(st.integers(0, len(lines))), line)
    read_or_refused("".join(lines))


@PATIENT
@given(st.data())
def test_an_example_with_one_value_exchanged(data: st.DataObject) -> None:
    content = yaml.safe_load(EXAMPLE)
    for _ in range(data.draw(st.integers(1, 3))):
        place = content
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = data.draw(st.sampled_from(keys)) if keys else None
            if key is None or not isinstance(place[key], dict | list) or data.draw(st.booleans()):
                break
            place = place[key]
        if key is not None:
            tree = st.recursive(
                SCALARS, lambda below: st.lists(below, max_size=2) | st.dictionaries(WORDS, below, max_size=3)
            )
            place[key] = data.draw(tree)
    read_or_refused(yaml.safe_dump(content))

"""Files that are no jobs: refused in a sentence, quickly, and never with a traceback."""

import copy
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.errors import BadInput
from gpuyard.intake import Caller, Form, decode
from gpuyard.intake.documents import parse_documents
from gpuyard.intake.forms import form_of, read

CALLER = Caller(now=datetime(2026, 3, 10, tzinfo=UTC), host_process=True)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x7fELF\x02\x01\x01\0\0\0", "f:1: holds a NUL"),
        (b"#!/bin/sh\n\nx\0y", "f:3: holds a NUL"),
        (b"#!/bin/sh\n# caf\xe9\necho caf\xe9\n", "f:3: byte 26 of the file, 0xe9, is not UTF-8"),
        (b"#!/bin/sh\n#SBATCH -J caf\xe9\n", "f:2: byte 25 of the file, 0xe9, is not UTF-8"),
        (b"# caf\xe9\nname: x\n", "f:1: byte 6 of the file, 0xe9, is not UTF-8"),
        (b"x" * (8 * 1024 * 1024 + 1), "larger than 8 MiB"),
    ],
)
def test_bytes_that_are_no_text(content: bytes, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        decode(content, "f")


def test_a_comment_in_latin_1_does_not_matter_and_is_told() -> None:
    text = decode(b"#!/bin/sh\n#SBATCH -J x\n  # caf\xe9\necho 1\n", "f")
    (found,) = read(text, "f", CALLER)
    assert "#!/bin/sh\n#SBATCH -J x\n  # caf\ufffd\necho 1\n" == found.job["script"]
    assert [(3, "a byte of this comment is not UTF-8, and is replaced")] == [
        (each.line, each.text) for each in found.warnings
    ]


@pytest.mark.parametrize("opens", ["[", "{", "[a, ", "{a: ", "[\n", "- ", "? "])
@pytest.mark.parametrize("closes", ["", "]"])
def test_nesting_is_refused_where_it_is_too_deep_and_is_not_read_to_its_end(opens: str, closes: str) -> None:
    """What is never closed was read to its end first, which took a minute for half a million brackets."""
    with pytest.raises(BadInput, match=r"f:\d+:\d+: nested deeper than 32 levels"):
        read(f"a:\n  {opens * 3_000}{closes * 3_000}", "f", CALLER)


def test_indentation_is_refused_where_it_is_too_deep() -> None:
    with pytest.raises(BadInput, match="f:33:33: nested deeper than 32 levels"):
        read("\n".join([f"{' ' * depth}a:" for depth in range(200)]) + " [", "f", CALLER)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "there is no job in it"),
        ("\n\n", "there is no job in it"),
        ("---\n---\n", "there is no job in it"),
        ("just words", "must be written as 'key: value'"),
        ("- a\n- b\n", "separate several by '---'"),
        ("a: 1\n", "neither a batch script"),
        ("a: [1\n", r"f:1:\d+: "),
        ("a: b: c\n", r"f:1:\d+: "),
        ("#SBATCH -N2\nhostname\n", "f:1: the first line must begin with #!"),
        ("\ufeff#!/bin/bash\nhostname\n", "f:1: begins with a byte order mark"),
        ("#!/bin/bash\r\nhostname\r\n", "f:1: ends with a Windows line break"),
        ("#!/bin/bash\n#SBATCH -N2\r\nhostname\n", "f:2: ends with a Windows line break"),
        ("#!/bin/bash\n#SBATCH -J 'x\n", "f:2: the quote '"),
        ("#!/bin/bash\n" + "x" * 1024 * 1024, "larger than 1024 KiB"),
        ("a: &x [*x]\n", "inside of what it refers to"),
    ],
)
def test_texts_that_are_no_jobs(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        read(text, "f", CALLER)


def test_ten_megabytes_are_refused_at_once() -> None:
    begun = time.process_time()
    for text in ("#!/bin/bash\n" + "#SBATCH -N2\n" * 1_000_000, "name: x\n" * 1_400_000):
        with pytest.raises(BadInput, match="larger than"):
            read(text, "f", CALLER, Form.SBATCH if text.startswith("#!") else Form.NATIVE)

    assert time.process_time() - begun < 20


def test_a_megabyte_of_directives_is_read() -> None:
    text = "#!/bin/bash\n" + "#SBATCH -N2 --mem=4G\n" * 40_000

    assert 2 == read(text, "f", CALLER)[0].job["tasks"]


_POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i, command: [c], %s}]}\n"


@pytest.mark.parametrize(
    "text",
    [
        _POD % f"env: [{{name: A, value: xxxxxxxx}}, {'{name: A, value: $(A)$(A)}, ' * 40}]",
        _POD % f"env: [{{name: A, value: {'x' * 9_000}}}], args: [{'$(A), ' * 1_000}]",
        "---\n".join([_POD % f"env: [{{name: A, value: {'x' * 9_000}}}], args: [{'$(A), ' * 10}]"] * 100),
        "kind: ConfigMap\napiVersion: v1\nmetadata: {name: m}\ndata: {A: "
        + "x" * 90_000
        + "}\n---\n"
        + "---\n".join([_POD % "envFrom: [{configMapRef: {name: m}}]"] * 100),
    ],
    ids=["doubled", "repeated", "in many pods", "of one map in many pods"],
)
def test_references_that_stand_for_more_than_any_file_are_refused(text: str) -> None:
    """One manifest of a kilobyte took all memory of the machine, and the server with it (`POST /jobs/read`)."""
    with pytest.raises(BadInput, match=r"f:\d+:\d+: .* expands too far: the references .* more than 8 MiB"):
        read(text, "f", CALLER)


def test_a_byte_order_mark_before_yaml_is_no_matter() -> None:
    assert Form.NATIVE is form_of("\ufeffcommand: [date]\n", "f")
    assert {"command": ["date"]} == read("\ufeffcommand: [date]\n", "f", CALLER)[0].job


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_directive_is_taken_or_refused(words: str) -> None:
    with suppress(BadInput):
        read(f"#!/bin/bash\n#SBATCH {words}\nhostname\n", "f", CALLER)


OPTIONS = st.sampled_from(
    [
        *(
            "-N",
            "-n",
            "-c",
            "-t",
            "-a",
            "-d",
            "-w",
            "-x",
            "-C",
            "-J",
            "-p",
            "-A",
            "-q",
            "-o",
            "-D",
            "-G",
            "-L",
            "-b",
        ),
        *("--mem", "--mem-per-cpu", "--mem-per-gpu", "--gres", "--gpus-per-node", "--gpus-per-task"),
        *("--ntasks-per-node", "--ntasks-per-gpu", "--gpus-per-socket", "--sockets-per-node"),
        *("--signal", "--deadline", "--export"),
    ]
)
VALUES = st.text(alphabet="0123456789-:%,.[]?+@=abkGMTBURSn_/ now", max_size=14)


@given(st.lists(st.tuples(OPTIONS, VALUES), max_size=5))
@settings(max_examples=500, deadline=None)
def test_any_value_is_taken_or_refused(options: list[tuple[str, str]]) -> None:
    caller = Caller(now=CALLER.now, arguments=tuple(word for option in options for word in option))
    with suppress(BadInput):
        read("#!/bin/bash\nhostname\n", "f", caller)


@given(st.text(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_text_is_taken_or_refused(text: str) -> None:
    for form in (None, *Form):
        with suppress(BadInput):
            read(text, "f", CALLER, form)


MANIFEST: dict[str, object] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j", "namespace": "n"},
    "spec": {
        "completions": 2,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "nodeSelector": {"gpuyard/pool": "p"},
                "affinity": {"nodeAffinity": {"preferred": []}},
                "volumes": [{"name": "v", "hostPath": {"path": "/v"}}],
                "containers": [
                    {
                        "image": "i",
                        "command": ["a"],
                        "env": [{"name": "A", "value": "x"}],
                        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                        "resources": {
                            "requests": {"cpu": 1},
                            "limits": {"nvidia.com/gpu": 1, "memory": "1Gi"},
                        },
                    }
                ],
            }
        },
    },
}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda below: st.lists(below, max_size=2) | st.dictionaries(st.text(max_size=5), below, max_size=2),
    max_leaves=4,
)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_any_manifest_is_taken_or_refused(data: st.DataObject) -> None:
    """One place of a manifest holds something else."""
    manifest = copy.deepcopy(MANIFEST)
    places: list[tuple[Any, Any]] = []
    left: list[Any] = [manifest]
    while left:
        node = left.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else []
        places += [(node, key) for key in keys]
        left += [node[key] for key in keys]
    above, key = data.draw(st.sampled_from(range(len(places))).map(places.__getitem__))
    above[key] = data.draw(ANYTHING)

    with suppress(BadInput):
        read(yaml.safe_dump(manifest), "f", CALLER, Form.KUBERNETES)


def test_many_documents_take_time_by_their_number() -> None:
    """Each was read with as many empty lines before it as the earlier ones had: 9,000 jobs took nine seconds."""

    def took_s(count: int) -> float:
        text = "---\n".join([f"name: j{n}\ncommand: ['true']\n" + "# a line\n" * 20 for n in range(count)])
        began_s = time.process_time()
        found = parse_documents(text, "many.yaml")
        took_s = time.process_time() - began_s
        assert (count, 23 * count - 22) == (len(found), found[-1].root.place.line)
        return took_s

    few_s, many_s = (min(took_s(count) for _ in range(3)) for count in (150, 1_500))
    assert many_s < 25 * few_s

"""Labels, taints and what jobs say of them, as text and back."""

import pytest

from gpuyard.model import Effect, Operator, Taint, Toleration
from gpuyard.model.placement import (
    FOR_GOOD,
    features_text,
    is_tolerated,
    join_selections,
    make_expression,
    parse_expression,
    parse_features,
    parse_preference,
    parse_taint,
    parse_terms,
    parse_toleration,
    preference_text,
    stays_ms,
    terms_text,
)


@pytest.mark.parametrize(
    ("text", "meets", "fails"),
    [
        ("zone=a", ["a"], ["b", "", None]),
        ("zone!=a", ["b", "", None], ["a"]),
        ("zone in (a, b)", ["a", "b"], ["c", None]),
        ("zone notin (a, b)", ["c", None], ["a", "b"]),
        ("zone", ["a", ""], [None]),
        ("!zone", [None], ["a", ""]),
        ("disks>4", ["5", "40"], ["4", "-5", "many", "", None]),
        ("disks<4", ["3", "-5"], ["4", "many", "", None]),
        ("example.com/disk=nvme", ["nvme"], ["hdd", None]),
    ],
)
def test_expressions_hold_as_in_kubernetes_and_are_written_as_they_are_read(
    text: str, meets: list[str | None], fails: list[str | None]
) -> None:
    expression = parse_expression(text)
    assert str(expression) == text
    assert [value for value in [*meets, *fails] if expression.holds(value)] == meets


def test_alternatives_have_all_that_must_hold() -> None:
    terms = parse_terms("zone in (a, b), nvme | !old,disks>1")
    assert [[each.operator.value for each in term] for term in terms] == [
        ["In", "Exists"],
        ["DoesNotExist", "Gt"],
    ]
    assert terms_text(terms) == "zone in (a, b), nvme | !old, disks>1"
    assert parse_terms(terms_text(terms)) == terms


def test_several_selections_must_all_hold() -> None:
    joined = join_selections(["zone=a | zone=b", "nvme", "nvme"])
    assert terms_text(joined) == "zone=a, nvme | zone=b, nvme"
    with pytest.raises(ValueError, match="comes to more than 64 alternatives"):
        join_selections(
            [" | ".join([f"k{each}=v" for each in range(9)]), " | ".join(["a", "b", "c", "d"] * 2)]
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("zone=a,,nvme", "empty part"),
        ("", "empty part"),
        ("zone in ()", "needs values"),
        ("disks>many", "one whole number, not 'many'"),
        ("-disk", "names a label"),
        ("zone=a b", "names a label"),
        ("zone=" + "x" * 64, "up to 63"),
    ],
)
def test_wrong_selections_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_terms(text)


def test_values_that_an_operator_cannot_take_are_refused() -> None:
    with pytest.raises(ValueError, match="takes no values with Exists"):
        make_expression("zone", Operator.EXISTS, ("a",))
    with pytest.raises(ValueError, match="needs values"):
        make_expression("zone", Operator.IN)


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("", ()),
        ("nvme", (("nvme",),)),
        ("nvme&ib,hot", (("nvme",), ("ib",), ("hot",))),
        ("[rack1|rack2]", (("rack1", "rack2"),)),
        ("a&(b|c)", (("a",), ("b", "c"))),
        ("(a&b)|c", (("a", "c"), ("b", "c"))),
        ("a&b|c", (("a", "c"), ("b", "c"))),
        ("a|b&c", (("a", "b"), ("c",))),
        ("((a|a))", (("a",),)),
    ],
)
def test_features_are_read_as_slurm_reads_them(text: str, groups: tuple[tuple[str, ...], ...]) -> None:
    assert groups == parse_features(text)
    assert groups == parse_features(features_text(groups))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a&", "lacks a feature"),
        ("(a|b", "do not match"),
        ("a)", "do not match"),
        ("(a]", "do not match"),
        ("a=b", "is written as"),
        ("[a*2&b*1]", "counts nodes by feature"),
        ("!a", "is written as"),
        ("|".join([f"(a{n}&b{n})" for n in range(9)]), "more than 64 groups"),
    ],
)
def test_features_that_cannot_be_kept_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_features(text)


def test_one_feature_for_all_nodes_is_for_a_job_on_one() -> None:
    assert parse_features("a|b", apart=True)
    with pytest.raises(ValueError, match="one feature for all nodes"):
        parse_features("[a|b]", apart=True)


def test_preferences_have_a_weight() -> None:
    weight, term = parse_preference("80: zone=a, nvme")
    assert (80, "80: zone=a, nvme") == (weight, preference_text(weight, term))
    assert 1 == parse_preference("zone=a")[0]
    for text, message in (
        ("0: zone=a", "from 1 to 100"),
        ("101: a", "from 1 to 100"),
        ("a | b", "one thing"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_preference(text)


def test_taints_and_tolerations_are_written_as_they_are_read() -> None:
    for text in ("gone:NoExecute", "owner=ana:NoSchedule", "old:PreferNoSchedule"):
        assert str(parse_taint(text)) == text
    for text in (
        "gone",
        "owner=ana",
        "owner=ana:NoSchedule",
        "*",
        "*:NoExecute",
        "gone:NoExecute for 5m",
        "* for 30s",
    ):
        assert str(parse_toleration(text)) == text
    assert parse_toleration("owner=") == Toleration("owner", "")
    for text, message in (
        ("gone", "key=value:NoSchedule"),
        ("gone:Never", "one of the effects"),
        ("-x:NoSchedule", "names a label"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_taint(text)
    with pytest.raises(ValueError, match="for NoExecute alone"):
        parse_toleration("gone:NoSchedule for 5m")


def test_the_shortest_time_of_several_tolerations_counts() -> None:
    gone = Taint("gone", Effect.NO_EXECUTE)
    tolerations = [parse_toleration(text) for text in ("gone", "gone for 5m", "other", "* for 1m")]
    assert 60_000 == stays_ms(tolerations, gone)
    assert FOR_GOOD == stays_ms(tolerations[:1], gone)
    assert 0 == stays_ms(tolerations[2:3], gone)
    assert is_tolerated(tolerations[:1], gone)
    assert not is_tolerated(tolerations, gone)

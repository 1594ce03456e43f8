"""Label conditions: what each operator takes, what it refuses to be asked, and at what cost."""

import random
import re

import pytest
from pydantic import ValidationError

from domain.constraint import LabelTerm, Operator
from domain.pattern import POSITIONS_MAX, STEPS_KEPT_MAX, pattern


@pytest.mark.parametrize(
    ("there", "operator", "wanted", "met"),
    [
        ("9", "<", "10", True),
        ("9.5", ">=", "9.50", True),
        ("-3", "<", "-2.5", True),
        ("1" * 30, ">", "9" * 29, True),
        ("many", ">", "10", False),
        ("128GB", ">", "64", False),
        ("1e3", ">", "10", False),
        ("b", ">", "a", True),
        ("b", "<=", "a", False),
        ("1.2.3", "version", "~> 1.2", True),
        ("1.2.3", "version", "~> 1.2.4", False),
        ("2.0", "version", "~> 1.2", False),
        ("v1.4.2", "version", ">= 1.2, < 1.4", False),
        ("1.2", "version", "1.2.0", True),
        ("1.2", "version", "!= 1.2.0", False),
        ("1.3.0-beta1", "version", ">= 1.2", False),
        ("1.3.0-beta1", "version", ">= 1.3.0-alpha", True),
        ("1.3.0-beta1", "version", "< 1.3.0-alpha", False),
        ("1.3.0", "version", "> 1.3.0-beta1", True),
        ("535.104.05", "version", ">= 535.54", True),
        ("odd", "version", "!= 1", False),
        ("1.3.0-beta1", "semver", ">= 1.2", True),
        ("1.3.0-beta.2", "semver", "> 1.3.0-beta.1.7", True),
        ("1.3.0-beta.11", "semver", "> 1.3.0-beta.2", True),
        ("1.3.0-1", "semver", "< 1.3.0-a", True),
        ("1.3.0+this", "semver", "= 1.3.0+that", True),
        ("1.3", "semver", ">= 1.2", False),
        ("rack-17.east", "regexp", "1[0-9]", True),
        ("rack-17.east", "regexp", r"^rack-\d{2}\.east$", True),
        ("rack-17xeast", "regexp", r"^rack-\d{2}\.east$", False),
        ("", "regexp", "^$", True),
        ("a, b ,c", "contains", "b", True),
        ("a,bc", "contains", "b", False),
    ],
)
def test_an_operator_takes_what_it_says(there: str, operator: str, wanted: str, met: bool) -> None:
    term = LabelTerm.model_validate({"key": "k", "operator": operator, "values": [wanted]})
    assert term.matches({"k": there}) is met
    assert not term.matches({"other": there}), "a label that is not there meets none of these"


def test_a_list_contains_all_values_or_any() -> None:
    both = {"key": "k", "values": ["a", "b"]}
    everyone = LabelTerm.model_validate({**both, "operator": "contains"})
    anyone = LabelTerm.model_validate({**both, "operator": "contains any"})
    found = [(everyone.accepts(text), anyone.accepts(text)) for text in ("b,a", "b", "c", "")]
    assert found == [(True, True), (False, True), (False, False), (False, False)]


@pytest.mark.parametrize(
    ("operator", "values", "says"),
    [
        ("<", ["1", "2"], "values must hold exactly one value with the operator <"),
        ("contains", [], "values must not be empty with the operator contains"),
        ("contains any", ["a,b"], "a value must hold no comma with the operator contains any"),
        ("version", ["newest"], "a range must look like '>= 1.2, < 2.0'"),
        ("version", [",".join(["> 1"] * 9)], "a range must have at most 8 comparisons"),
        ("semver", ["~> 1.2"], "semver knows no '~>': write '>= 1.2.0, < 2.0.0'"),
        ("regexp", ["a(b"], "a pattern has a '(' without its ')'"),
        ("regexp", ["(a)\\1"], "a pattern must not hold \\1"),
        ("regexp", ["(?=a)b"], "a pattern may group with ( ) and (?: ) only"),
        ("regexp", ["a^b"], "a pattern may have a '^' at its edge only: write \\^"),
        ("regexp", ["((a{8}){8}){8}"], "a pattern must have at most 128 characters, counts"),
        ("regexp", ["(" * 20 + "a" + ")" * 20], "a pattern must have at most 16 groups inside"),
        ("regexp", ["a{2"], "a pattern counts with {3}, {1,3} or {1,}"),
        ("regexp", ["[z-a]"], "a pattern has a range whose end comes before its begin"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_words(
    operator: str, values: list[str], says: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        LabelTerm.model_validate({"key": "k", "operator": operator, "values": values})
    assert says in str(caught.value)


def test_patterns_find_what_those_of_the_language_find() -> None:
    seed = 20_261
    print("seed", seed)
    chance = random.Random(seed)
    compared = 0
    for _ in range(1_200):
        written = _a_pattern(chance, 2)
        found = pattern(written)
        for _ in range(3):
            text = "".join(chance.choices("abc1", k=chance.randint(0, 6)))
            assert found.found_in(text) == bool(re.search(written, text)), (written, text)
            compared += 1
    assert compared > 3_000


def _a_pattern(chance: random.Random, depth: int) -> str:
    edge = chance.choice(["", "", "^"]), chance.choice(["", "", "$"])
    return edge[0] + _a_part(chance, depth) + edge[1]


def _a_part(chance: random.Random, depth: int) -> str:
    kind = chance.random() if depth else 0.0
    if kind < 0.4:
        return chance.choice(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\W", "c", "[a-c1]"])
    if kind < 0.6:
        return _a_part(chance, depth - 1) + _a_part(chance, depth - 1)
    if kind < 0.75:
        return f"({_a_part(chance, depth - 1)}|{_a_part(chance, depth - 1)})"
    count = chance.choice(["*", "+", "?", "{2}", "{1,2}", "{0,1}", "{1,}", "{0}", "*?"])
    return f"(?:{_a_part(chance, depth - 1)}){count}"


def test_a_hostile_pattern_takes_as_many_steps_as_the_text_has_characters() -> None:
    # Where a pattern backtracks, these take longer than the universe lasts.
    for written in ("(a|a?)+(a+)+x", "(a*)*c", "(.*a){12}x", "(a|b|ab|ba)*.{60}[ac].{40}z"):
        found = pattern(written)
        assert not found.found_in("ab" * 5_000)
        assert len(found._symbols) <= POSITIONS_MAX
        assert len(found._steps) <= STEPS_KEPT_MAX


def test_a_missing_label_meets_only_the_negative_operators() -> None:
    values = {Operator.EXISTS: (), Operator.NOT_EXISTS: ()}
    met = {
        operator
        for operator in Operator
        if LabelTerm(key="k", operator=operator, values=values.get(operator, ("1.0.0",))).matches(
            {}
        )
    }
    assert met == {Operator.NOT_EQUAL, Operator.NOT_IN, Operator.NOT_EXISTS}

"""Every stage against every event: named, total, and equal to the table people read."""

from typing import Any, get_args

import pytest

from domain.claims import LedgerAnswer
from domain.lifecycle import Event, check, step
from domain.protocol import TaskMessage
from domain.stages import Enqueuing, Settling, Stage, Withdrawing
from tests.domain.builders import NOW
from tests.domain.lifecycle_table import GOLDEN, PAGE, answers, messages, page, render, stages

ANSWER_OF = {Enqueuing: "enqueued", Settling: "settled", Withdrawing: "withdrawn"}
PAIRS = [(s, e) for s in stages() for e in [*messages(), *answers()]]


def _members(union: Any) -> set[Any]:
    return set(get_args(get_args(union)[0]))


def test_the_grid_names_every_stage_and_every_event():
    assert {type(state.stage) for state in stages().values()} == _members(Stage)
    assert {type(what) for what in messages().values()} == _members(TaskMessage)
    assert {type(what) for what in answers().values()} == _members(LedgerAnswer)


@pytest.mark.parametrize(("stage", "event"), PAIRS)
def test_a_pair_is_possible_exactly_when_question_and_answer_match(stage, event):
    state = stages()[stage]
    what = {**messages(), **answers()}[event]
    asked = ANSWER_OF.get(type(state.stage))
    possible = what.kind == asked if event in answers() else asked is None
    if not possible:
        with pytest.raises(AssertionError):
            step(state, Event(what=what, at=NOW))
        return
    after, effects = step(state, Event(what=what, at=NOW))
    check(after)
    assert len(effects) == (1 if type(after.stage) in ANSWER_OF else 0)


def test_the_table_is_the_golden_text():
    assert render() == GOLDEN.read_text(), (
        "the state machine changed: read the difference, then renew the text with"
        " python -m tests.domain.lifecycle_table --write"
    )


def test_the_page_shows_the_table_of_today():
    assert page() == PAGE.read_text()

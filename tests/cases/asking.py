"""How an adapter of peer cases asks them: one test per case, named by its id.

What is answered otherwise on purpose is skipped with the reason that the decision gives:
`| case or kind | reason |`.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

Case = dict[str, Any]


def otherwise(decision: Path) -> dict[str, str]:
    """By case or kind, the reason in the decision."""
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", decision.read_text(), re.MULTILINE)
    return dict(rows)


def parametrize(
    metafunc: pytest.Metafunc,
    topics: Mapping[str, str],
    answered_otherwise: Mapping[str, str],
    decision: Path,
) -> None:
    """One test per case; one visible skip where no folder was given or a topic is missing.

    A test's name says its kind; `test_answered_otherwise` takes all the kinds of that mapping.
    """
    if "case" not in metafunc.fixturenames:
        return
    kind = metafunc.function.__name__.removeprefix("test_")
    kinds = answered_otherwise if kind == "answered_otherwise" else {kind: topics[kind]}
    reasons = otherwise(decision)
    params = [
        param for one, topic in kinds.items() for param in _params(metafunc, one, topic, reasons)
    ]
    metafunc.parametrize("case", params)


def _params(
    metafunc: pytest.Metafunc, kind: str, topic: str, reasons: Mapping[str, str]
) -> list[Any]:
    folder = metafunc.config.getoption("--cases")
    if folder is None:
        skip = pytest.mark.skip(reason="no folder of peer cases was given (--cases)")
        return [pytest.param({}, marks=skip, id=kind)]
    path = Path(folder) / f"{topic}.json"
    if not path.exists():
        skip = pytest.mark.skip(reason=f"{path.name} is not in the folder of peer cases")
        return [pytest.param({}, marks=skip, id=kind)]
    cases = [case for case in json.loads(path.read_text())["cases"] if case["kind"] == kind]
    assert cases, f"{path.name} holds no case of {kind}"
    return [_param(case, reasons) for case in cases]


def _param(case: Case, reasons: Mapping[str, str]) -> Any:
    reason = reasons.get(case["id"], reasons.get(case["kind"]))
    marks = [pytest.mark.skip(reason=f"{case['id']}: {reason}")] if reason else []
    return pytest.param(case, marks=marks, id=case["id"])

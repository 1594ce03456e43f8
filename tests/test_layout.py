"""The style as a test: where files lie, how large they grow, what things are called."""

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
import typing
import warnings
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

FILE_LINES_AIM, FILE_LINES_MAX = 400, 600
FUNCTION_LINES_AIM, FUNCTION_LINES_MAX = 60, 120

FORBIDDEN_FILES = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}
FORBIDDEN_WORDS = {"node", "job", "pod", "host", "executor", "kubelet"}
# Names that other people's interfaces give to things, used here as they use them.
FORBIDDEN_WORDS_ALLOWED = {
    "api_host",  # the address a server listens on
    "agent_host",
    "metrics_host",
    "local_host",
    "run_in_executor",  # asyncio's and temporalio's word for a pool of threads
    "activity_executor",
}
# `worker` means a Temporal worker process and nothing else; only these speak of that process.
WORKER_SPOKEN_OF = ("worker/", "drystone/", "runtime/", "sim/", "tests/")
# The one __init__ that is not empty: `import drystone` is the public client.
PUBLIC_INIT = "drystone/__init__.py"
# The benchmark's yardstick: no run of it outlives the release it was started by.
UNRECORDED = {"FloorWorkflow"}


class LayoutWarning(UserWarning):
    """Larger than we aim for: no failure, but something to look at."""


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def _sources(*tops: str) -> list[Path]:
    found = [path for top in tops or (*PACKAGES, "tests") for path in (ROOT / top).rglob("*.py")]
    return sorted(path for path in found if "__pycache__" not in path.parts)


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


# --- where things lie -----------------------------------------------------------------------


@pytest.mark.parametrize("package", [*PACKAGES, "tests"])
def test_each_package_is_ours_and_no_stray(package: str) -> None:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None, f"{package} has no __init__.py"
    assert Path(spec.origin).resolve() == ROOT / package / "__init__.py"


def test_every_folder_of_a_package_has_an_init() -> None:
    folders = {path.parent for path in _sources(*PACKAGES)}
    assert [_relative(f) for f in sorted(folders) if not (f / "__init__.py").exists()] == []


def test_inits_are_empty() -> None:
    inits = [path for path in _sources() if path.name == "__init__.py"]
    full = {_relative(path) for path in inits if path.read_text().strip()}
    assert full - {PUBLIC_INIT} == set()


def test_no_file_has_a_name_that_says_nothing() -> None:
    assert [_relative(p) for p in _sources() if p.stem.strip("_") in FORBIDDEN_FILES] == []


def test_imports_point_down() -> None:
    linter = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run(
        [linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


# --- sizes and docstrings -------------------------------------------------------------------


def test_every_module_says_in_its_docstring_what_it_is_for() -> None:
    silent = [
        _relative(path)
        for path in _sources()
        if path.name != "__init__.py" and not ast.get_docstring(_tree(path))
    ]
    assert silent == []


@pytest.mark.filterwarnings("default::tests.test_layout.LayoutWarning")
def test_files_fit_the_head() -> None:
    lines = {_relative(path): len(path.read_text().splitlines()) for path in _sources()}
    _judge(lines, FILE_LINES_AIM, FILE_LINES_MAX)


@pytest.mark.filterwarnings("default::tests.test_layout.LayoutWarning")
def test_functions_fit_the_screen() -> None:
    lines = {
        f"{_relative(path)}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in _sources()
        for node in _functions(path)
    }
    _judge(lines, FUNCTION_LINES_AIM, FUNCTION_LINES_MAX)


def _judge(lines: dict[str, int], aim: int, most: int) -> None:
    large = {name: size for name, size in lines.items() if size > aim}
    if large:
        shown = ", ".join(f"{name} ({size})" for name, size in sorted(large.items()))
        warnings.warn(f"more than {aim} lines: {shown}", LayoutWarning, stacklevel=2)
    assert {name: size for name, size in large.items() if size > most} == {}


# --- words ----------------------------------------------------------------------------------


def test_our_names_come_from_the_vocabulary() -> None:
    wrong = []
    for path in _sources(*PACKAGES):
        speaks_of_workers = _relative(path).startswith(WORKER_SPOKEN_OF)
        forbidden = FORBIDDEN_WORDS | (set() if speaks_of_workers else {"worker"})
        wrong += [
            f"{_relative(path)}: {name}"
            for name in sorted(_names_given(path))
            if name not in FORBIDDEN_WORDS_ALLOWED and _words(name) & forbidden
        ]
    assert wrong == []


def test_the_word_check_sees_what_it_should() -> None:
    assert _words("HTTPHostName") == {"http", "host", "name"}
    assert _words("_node_ids") == {"node", "id"}
    assert _words("localhost_url") & FORBIDDEN_WORDS == set()


def _words(name: str) -> set[str]:
    """The words of an identifier, singular: nodeIds, NODE_IDS and node_id speak of the same."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return {word.lower().removesuffix("s") if len(word) > 2 else word.lower() for word in words}


def _names_given(path: Path) -> set[str]:
    """What this file itself names; what it merely uses is others' business."""
    names = {path.stem}
    for node in ast.walk(_tree(path)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.arg():
                names.add(node.arg)
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
            case ast.Attribute(ctx=ast.Store()):
                names.add(node.attr)
            case ast.alias(asname=str() as alias):
                names.add(alias)
            case _:
                pass
    return names


# --- rule 57: a reason, event or effect stands in the type, the table, a test and the docs --------


def _members(union: object) -> list[type]:
    if isinstance(union, type):
        return [union]
    members = []
    for part in typing.get_args(union):
        if isinstance(part, type) or typing.get_args(part):
            members += _members(part)
    return members


def _words_of_the_core() -> list[tuple[str, str]]:
    """(kind, name) of each reason, event and effect of domain/."""
    if importlib.util.find_spec("domain.reasons") is None:
        return []
    from domain.claims import LedgerAnswer, LedgerOperation
    from domain.protocol import ClusterMessage, TaskMessage
    from domain.reasons import Reason

    found = [("reason", reason.name) for reason in Reason]
    for kind, union in (
        ("event", TaskMessage),
        ("event", ClusterMessage),
        ("answer", LedgerAnswer),
        ("effect", LedgerOperation),
    ):
        found += [(kind, member.__name__) for member in _members(union)]
    return list(dict.fromkeys(found))


def _missing(text: str) -> list[str]:
    """Those of which a text has neither the name nor, for a reason, the value."""
    return [
        f"{kind} {name}"
        for kind, name in _words_of_the_core()
        if not re.search(rf"\b({name}|{name.lower() if kind == 'reason' else name})\b", text)
    ]


def test_every_reason_event_and_effect_is_in_a_test() -> None:
    tests = [path for path in _sources("tests") if path != Path(__file__)]
    assert _missing("\n".join(path.read_text() for path in tests)) == []


def test_every_reason_event_and_effect_is_in_the_docs() -> None:
    assert _missing("\n".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))) == []


def test_every_workflow_has_recorded_histories() -> None:
    """tests/histories/task/ holds those of TaskWorkflow, and so on."""
    names = [
        node.name
        for path in _sources("workflows")
        for node in _tree(path).body
        if isinstance(node, ast.ClassDef)
        and any("workflow.defn" in ast.unparse(mark) for mark in node.decorator_list)
    ]
    folders = {n: n.removesuffix("Workflow").lower() for n in names if n not in UNRECORDED}
    histories = ROOT / "tests" / "histories"
    assert [n for n, folder in folders.items() if not list((histories / folder).glob("*"))] == []


# --- what is shipped ------------------------------------------------------------------------


def _plain_lines(path: Path) -> list[str]:
    lines = [line.split("#")[0].strip() for line in path.read_text().splitlines()]
    return [line for line in lines if line]


def test_the_wheel_asks_for_what_the_environment_is_locked_to() -> None:
    assert PROJECT["project"]["dependencies"] == _plain_lines(ROOT / "requirements.in")


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_requirements_are_locked_and_name_no_index(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert not re.search(r"^-", text, flags=re.MULTILINE), "an option stands in it"
    entries = re.split(r"\n(?=[a-z0-9])", text.strip())
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_the_wheel_holds_the_packages_and_no_tests(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.split("/")[0] for name in held if ".dist-info" not in name}
    assert tops == set(PACKAGES)
    needed = {
        _relative(path)
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in (".py", ".mako", ".ini") and "__pycache__" not in path.parts
    }
    assert needed - held == set()

"""What a team asks for: the specification of a task, its limits and its digest."""

import hashlib
import json
import posixpath
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    PlainSerializer,
    StringConstraints,
    field_validator,
    model_validator,
)

from domain.constraint import Constraints
from domain.ids import TaskId, TaskKey, TeamName, task_key
from domain.misfit import VARIABLE_PATTERN
from domain.misfit import given as shown
from domain.priority import Band
from domain.resources import Resources
from domain.retry import Growth, Retries
from domain.unknown import unknown_fields

COMMAND_WORDS_MAX = 1_000
COMMAND_BYTES_MAX = 120_000
ENV_NAMES_MAX = 500
ENV_NAME_CHARS_MAX = 200
ENV_VALUE_BYTES_MAX = 120_000
"""Linux refuses one environment string of 131,072 bytes or more (MAX_ARG_STRLEN)."""
SPEC_BYTES_MAX = 256 * 1024
"""Largest submission in bytes of JSON, far below Temporal's 2 MB for a payload."""
UNKNOWN_SHOWN_MAX = 10
GRACE_S_MAX = 3_600
RUN_TIMEOUT_S_MAX = 366 * 86_400

DEFAULT_RESOURCES = Resources(cpu_milli=1_000, memory_mib=512)


BandName = Literal["CRITICAL", "HIGH", "NORMAL", "LOW", "PREEMPTIBLE"]


class OnLoss(StrEnum):
    """What happens to a running attempt whose cluster or machine went silent."""

    REPLACE_AFTER_FENCE = "replace_after_fence"
    WAIT = "wait"
    REPLACE_AT_ONCE = "replace_at_once"


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not hold a NUL character")
    return text


_BANDS = tuple(Band)


def _band(written: Any) -> Any:
    if isinstance(written, str) and written.upper() in Band.__members__:
        return Band[written.upper()]
    if isinstance(written, bool) or written not in _BANDS:
        raise ValueError(f"must be one of {', '.join(Band.__members__)}, not {shown(written)}")
    return written


Priority = Annotated[
    Band,
    BeforeValidator(_band, json_schema_input_type=BandName | Band),
    PlainSerializer(lambda band: band.name, return_type=BandName, when_used="json"),
]
"""Written by its name; its number is read too."""
Text = Annotated[str, BeforeValidator(lambda v: _no_nul(v) if isinstance(v, str) else v)]
EnvName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=ENV_NAME_CHARS_MAX, pattern=VARIABLE_PATTERN),
]


class Simulated(BaseModel, frozen=True):
    """What the simulated driver plays: how long the task lasts and how it ends."""

    duration_ms: int = Field(default=1_000, ge=0, le=366 * 86_400_000)
    exit_code: int = Field(default=0, ge=0, le=255)


class TaskSpec(BaseModel, frozen=True):
    """One unit of work, complete: the workflow's input, the ledger's row and the agent's offer."""

    team: TeamName = "default"
    id: TaskId
    command: tuple[Text, ...] = Field(min_length=1, max_length=COMMAND_WORDS_MAX)
    env: dict[EnvName, Text] = Field(default_factory=dict, max_length=ENV_NAMES_MAX)
    working_dir: Text | None = Field(default=None, max_length=4_000)
    """Where the command runs: a folder that is there; relative ones, and without it a fresh one,
    are made per attempt."""
    resources: Resources = DEFAULT_RESOURCES
    """A quantity of cpu or memory that is left out is the default's; none may be zero."""
    constraints: Constraints = Constraints()
    priority: Priority = Band.NORMAL
    retries: Retries = Retries()
    queue_timeout_s: int | None = Field(default=None, ge=1, le=RUN_TIMEOUT_S_MAX)
    """Longest time waiting for a machine, each time it waits; then EXPIRED."""
    run_timeout_s: int | None = Field(default=None, ge=1, le=RUN_TIMEOUT_S_MAX)
    """Longest run of one attempt, from the child's start; frozen time does not count."""
    grace_s: int = Field(default=30, ge=0, le=GRACE_S_MAX)
    """Between the stop signal and the kill."""
    on_loss: OnLoss = OnLoss.REPLACE_AFTER_FENCE
    accept_late_success: bool = False
    simulated: Simulated | None = None

    @field_validator("resources", mode="before")
    @classmethod
    def _cpu_and_memory_have_defaults(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        read = dict(given)
        for written, base in (("cpu", "cpu_milli"), ("memory", "memory_mib")):
            if written not in read and base not in read:
                read[base] = getattr(DEFAULT_RESOURCES, base)
        return read

    @field_validator("resources")
    @classmethod
    def _cpu_and_memory_are_asked_for(cls, resources: Resources) -> Resources:
        # A task that asks for nothing would fit a machine without end.
        if resources.cpu_milli < 1:
            raise ValueError("cpu must be at least 1m")
        if resources.memory_mib < 1:
            raise ValueError("memory must be at least 1Mi")
        return resources

    @field_validator("command")
    @classmethod
    def _command_is_short_enough(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        if not command[0]:
            raise ValueError("the first word must not be empty")
        if any(len(word.encode()) > COMMAND_BYTES_MAX for word in command):
            raise ValueError(f"a word must have at most {COMMAND_BYTES_MAX} bytes")
        return command

    @field_validator("env")
    @classmethod
    def _values_are_short_enough(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if len(value.encode()) > ENV_VALUE_BYTES_MAX:
                raise ValueError(f"{name} must have at most {ENV_VALUE_BYTES_MAX} bytes")
            if name.startswith("DRYSTONE_"):
                raise ValueError(f"{name}: names that begin with DRYSTONE_ are set by Drystone")
        return env

    @property
    def key(self) -> TaskKey:
        """`<team>/<id>`."""
        return task_key(self.team, self.id)


class SubmitTask(TaskSpec, frozen=True, extra="forbid"):
    """What people send, over REST or as a workflow's input: unknown fields are errors."""

    @field_validator("working_dir")
    @classmethod
    def _a_relative_folder_stays_inside(cls, path: str | None) -> str | None:
        # Here and not in TaskSpec, so that rows which were taken before can still be read.
        if path is not None and leaves_its_folder(path):
            raise ValueError(
                f"must be absolute or stay inside the attempt's folder, not {shown(path)}"
            )
        return path

    @model_validator(mode="before")
    @classmethod
    def _nothing_is_misspelt(cls, given: Any) -> Any:
        unknown = [field for field in unknown_fields(cls, given) if "." in field]
        if unknown:
            raise ValueError(f"unknown: {', '.join(unknown[:UNKNOWN_SHOWN_MAX])}")
        return given


def leaves_its_folder(path: str) -> bool:
    """A relative path that climbs above where it begins, symbolic links left aside."""
    return not path.startswith("/") and posixpath.normpath(path).split("/")[0] == ".."


def body_digest(spec: TaskSpec) -> str:
    """Hex digest of the meaning of a submission: equal for bodies that ask for the same."""
    meaning = TaskSpec.model_validate(spec.model_dump()).model_dump(mode="json")
    # By number, as digests always had it: a task submitted before stays the same one.
    meaning["priority"] = int(spec.priority)
    # Rules that came later are no part of the meaning where nobody asks for them, likewise.
    for name in ("near", "apart", "limits", "even"):
        if not meaning["constraints"][name]:
            del meaning["constraints"][name]
    retries = meaning["retries"]
    for name in ("final_on", "final_exit_codes", "only_exit_codes"):
        if not retries[name]:
            del retries[name]
    if retries["backoff"]["growth"] == Growth.EXPONENTIAL:
        del retries["backoff"]["growth"]
    canonical = json.dumps(meaning, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()

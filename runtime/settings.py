"""Every number and address that may differ between two installations, with its default.

Read once, in a __main__, and passed down; nothing imports an instance. Each group is a class of its
own, so that a reader can ask for the part it needs. Environment: DRYSTONE_ and the field's name.
What belongs to the meaning of a task (lengths of names, sizes of environments) stands in domain/.
"""

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

ENV_PREFIX = "DRYSTONE_"

KEEP_ALIVE_S = 75
"""Our servers hold an idle connection longer than clients do, whose request might otherwise meet
its end: httpx lets go after 5 s, load balancers after a minute."""

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Percent = Annotated[float, Field(ge=0, le=100)]
Port = Annotated[int, Field(ge=1, le=65_535)]


def _default_data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if base else Path.home() / ".local" / "share") / "drystone"


def _with_driver(url: str) -> str:
    """People write postgresql://; SQLAlchemy must be told that the driver we ship is psycopg 3."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise ValueError("must be a database URL such as sqlite:///ledger.db or postgresql://...")
    return f"postgresql+psycopg://{rest}" if scheme in ("postgres", "postgresql") else url


def _default_database_url(found: dict[str, Any]) -> str:
    return f"sqlite:///{found['data_dir'] / 'ledger.db'}"


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class StoreSettings(_Part):
    """Where facts are kept."""

    data_dir: Annotated[Path, AfterValidator(_absolute)] = Field(default_factory=_default_data_dir)
    database_url: Annotated[str, AfterValidator(_with_driver)] = Field(
        default_factory=_default_database_url
    )
    database_connections: Count = 10


class TemporalSettings(_Part):
    """How to reach the Temporal server, and how workers poll it."""

    temporal_address: str = "127.0.0.1:7233"
    temporal_namespace: str = "default"
    temporal_ui_port: Port = 8233
    temporal_api_key: SecretStr | None = None
    temporal_tls: bool = False
    workflow_pollers: Count = 10
    activity_pollers: Count = 10
    # 0.5 and not the SDK's 0.2: sticky polls otherwise starve new workflows under load.
    nonsticky_to_sticky_poll_ratio: float = Field(default=0.5, gt=0, lt=1)
    cached_workflows: Count = 1_000
    # How long a killed worker's sticky queue can hold up the others.
    sticky_timeout_s: Seconds = 1
    # Workflow task timeout of starts through the API, for the same reason.
    workflow_task_timeout_s: Seconds = 2
    shutdown_grace_s: Seconds = 5
    # Local activities on the ledger: one that is down is waited for by a timer, not by history.
    local_activity_s: Seconds = 1
    local_retry_threshold_s: Seconds = 2
    local_backoff_s_max: Seconds = 60
    continue_as_new_events: Count = 2_000


class FaceSettings(_Part):
    """REST: where it listens, where clients find it, how much it reads."""

    api_host: str = "127.0.0.1"
    api_port: Port = 8080
    api_url: str = "http://127.0.0.1:8080"
    body_bytes_max: Count = 256 * 1024
    wait_s_max: Seconds = 60
    page_rows_max: Count = 1_000
    ledger_answer_s: Seconds = 5
    temporal_answer_s: Seconds = 5
    retry_after_s: Count = 2
    # Tasks that wait for a machine, in all; above it a submission is answered 429.
    backlog_tasks_max: Count = 1_000_000


class PlacementSettings(_Part):
    """Rounds, bells and cool-downs."""

    partitions: Count = 1
    round_spacing_ms: int = Field(default=50, ge=0)
    round_tasks_max: Count = 10_000
    round_heartbeat_s: Seconds = 2.5
    bell_rung_s: Seconds = 1
    bell_busy_s: Seconds = 5
    expire_hint_s: Seconds = 1
    index_age_s_max: Seconds = 1
    index_compare_s: Seconds = 60
    # A refresh re-reads this much: commits land out of sequence, by one transaction's length.
    index_overlap_s: Seconds = 5
    refusals: Count = 3
    refusal_window_s: Seconds = 60
    cool_down_s: Seconds = 60
    cool_down_s_max: Seconds = 600


class LeaseSettings(_Part):
    """Silence, leases, fences and the brake. Scheduler, agent and keeper must agree on these."""

    heartbeat_s: Seconds = 10
    suspect_s: Seconds = 30
    lease_s: Seconds = 60
    # The scheduler's wait is longer than the lease: by drift, by a margin, and by one slice more.
    lease_drift_percent: Percent = 1
    lease_margin_s: Seconds = 5
    lease_slices: Count = 4
    slice_late_s: Seconds = 2
    offer_deadline_s: Seconds = 15
    loss_page_tasks: Count = 50
    loss_tasks_per_s: Count = 50
    brake_clusters: Count = 2
    brake_percent: Percent = 20
    # Audits begin so often; what one agent's list shows is looked at again after the second time.
    audit_interval_s: Seconds = 300
    audit_look_again_s: Seconds = 5

    @model_validator(mode="after")
    def _silence_is_noticed_before_the_lease_ends(self) -> Self:
        if not self.heartbeat_s < self.suspect_s <= self.lease_s:
            raise ValueError("heartbeat_s < suspect_s <= lease_s must hold")
        return self


class AgentSettings(_Part):
    """One agent and its keepers."""

    cluster: str = "local"
    site: str = ""
    agent_host: str = "127.0.0.1"
    agent_port: Port = 8090
    # What the agent tells others to reach it by; empty: made of host and port.
    agent_url: str = ""
    machine: str = Field(default_factory=socket.gethostname)
    # What a keeper reaches its agent by.
    keeper_agent_url: str = "http://127.0.0.1:8090"
    # `progress` at most this often, and on change only; `started` only for what lives this long.
    progress_s: Seconds = 60
    started_after_s: Seconds = 2
    output_bytes_max: Count = 16 * 1024 * 1024
    folders_kept_s: Seconds = 86_400

    @property
    def agent_http(self) -> str:
        """The address that goes with the agent's registration."""
        return self.agent_url or f"http://{self.agent_host}:{self.agent_port}"


class TelemetrySettings(_Part):
    """What a process says about itself."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "text"] = "json"
    metrics_host: str = "127.0.0.1"
    # 0: no metrics endpoint of its own (the API always serves /metrics).
    metrics_port: int = Field(default=0, ge=0, le=65_535)


class Settings(
    BaseSettings,
    StoreSettings,
    TemporalSettings,
    FaceSettings,
    PlacementSettings,
    LeaseSettings,
    AgentSettings,
    TelemetrySettings,
):
    """All of them. `Settings()` reads the environment; keywords win over it."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, frozen=True, extra="forbid"
    )

    def environment(self) -> Mapping[str, str]:
        """The variables that give a child process these same settings."""
        changed = self.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
        changed |= {"data_dir": str(self.data_dir), "database_url": self.database_url}
        if self.temporal_api_key is not None:
            changed["temporal_api_key"] = self.temporal_api_key.get_secret_value()
        return {f"{ENV_PREFIX}{name.upper()}": str(value) for name, value in changed.items()}


VARIABLES: Mapping[str, str] = {
    name: f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields
}
"""What people call a setting that does not fit."""

"""What an agent is told at its start. Flags win over the environment (`runtime.settings`)."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from agent.admission import Terms
from domain.ids import Name
from domain.misfit import told
from runtime.settings import VARIABLES, Settings

TOKEN_VARIABLE = "DRYSTONE_KEEPER_TOKEN"  # noqa: S105 (the name of a variable)
ANY_PORT = "127.0.0.1:0"


@dataclass(frozen=True, slots=True)
class Options:
    """One agent process."""

    runtime: Settings
    folder: Path
    listen: str
    """`name:port` for TCP; empty: only the Unix socket in the folder."""
    token: str
    simulate: Path | None

    @property
    def terms(self) -> Terms:
        """The numbers of `agent.admission`."""
        given = self.runtime
        return Terms(
            lease_ms=_ms(given.lease_s),
            keeper_lease_ms=_ms(given.lease_s),
            suspect_ms=_ms(given.suspect_s),
            drift_percent=given.lease_drift_percent,
            margin_ms=_ms(given.lease_margin_s),
            late_ms=_ms(given.slice_late_s),
            brake_machines=given.brake_clusters,
            brake_percent=given.brake_percent,
            started_after_ms=_ms(given.started_after_s),
        )


def read_options(words: Sequence[str], environment: Mapping[str, str]) -> Options:
    """The options, or an exit with a message that names what is wrong."""
    parser = _parser()
    given = parser.parse_args(words)
    named = {
        "cluster": given.cluster,
        "site": given.site,
        "temporal_address": given.temporal,
        "temporal_namespace": given.namespace,
    }
    try:
        runtime = Settings(**{name: value for name, value in named.items() if value is not None})
        TypeAdapter(Name).validate_python(runtime.cluster)
    except ValidationError as error:
        parser.error(told(error, {**VARIABLES, "": "--cluster"}))
    listen = _default_listen(runtime) if given.listen is None else given.listen
    if listen and not _is_address(listen):
        parser.error(f"--listen {listen!r}: give NAME:PORT, or an empty text for no TCP")
    folder: Path = given.folder or runtime.data_dir / "agent"
    return Options(
        runtime=runtime,
        folder=folder.expanduser().absolute(),
        listen=listen,
        token=given.token or environment.get(TOKEN_VARIABLE, ""),
        simulate=given.simulate,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="drystone agent", description="The agent of one cluster.")
    add = parser.add_argument
    add("--cluster", metavar="NAME")
    add("--folder", type=Path, help="its journal and its socket for keepers, agent.sock")
    add("--temporal", metavar="NAME:PORT", help="the Temporal server")
    add("--namespace", help="of Temporal")
    add("--site", help="what several clusters of one place have in common")
    add("--listen", metavar="NAME:PORT", help="for keepers and the API; port 0: any that is free")
    add("--token", default="", help=f"what keepers must show; better given as {TOKEN_VARIABLE}")
    add("--simulate", type=Path, metavar="CSV", help="machines that only pretend to run tasks")
    return parser


def _default_listen(runtime: Settings) -> str:
    """The port is fixed only where somebody has named it: several agents may share a computer."""
    if "agent_port" in runtime.model_fields_set:
        return f"{runtime.agent_host}:{runtime.agent_port}"
    return ANY_PORT


def _is_address(text: str) -> bool:
    name, _, port = text.rpartition(":")
    return bool(name) and port.isdecimal() and int(port) <= 65_535


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)

"""A machine as its keeper reports it: what it has and where it stands."""

from pydantic import BaseModel, Field

from domain.constraint import Taint
from domain.ids import Name
from domain.resources import Resources

LABELS_MAX = 64


class MachineReport(BaseModel, frozen=True):
    """Inventory of one machine, as registered by its keeper under a fresh instance id."""

    name: Name
    instance: str
    """Changes whenever the keeper starts: attempts of an older instance are dead."""
    capacity: Resources
    zone: str = Field(default="", max_length=63)
    rack: str = Field(default="", max_length=63)
    labels: dict[Name, str] = Field(default_factory=dict, max_length=LABELS_MAX)
    taints: tuple[Taint, ...] = Field(default=(), max_length=LABELS_MAX)


class MachineClass(BaseModel, frozen=True):
    """What machines of the fleet have in common as far as submission may ask: see `never_fits`."""

    cluster: str
    zone: str
    capacity: Resources
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    machines: int = 1

"""How much of what is free is of use, by resource and by demand. Knows no machine by name."""

from pydantic import BaseModel

from domain.resources import Resources


class ResourceRoom(BaseModel, frozen=True):
    """One resource over the fleet, in base units."""

    capacity: int
    used: int
    closed: int
    """Free on machines that take no new work: cordoned, silent, or of a silent cluster."""
    free: int
    """Free on the others."""
    largest: int
    """Free on the one of them that has most: a task cannot use two machines."""
    stranded: int
    """Of `free`, what is on machines where nothing that asks for the resource has room: of the
    shapes below."""


class ShapeRoom(BaseModel, frozen=True):
    """One demand, by its standard resources alone: rules and named resources are not looked at."""

    resources: Resources
    waiting: int
    """Tasks that wait for it; 0 for what only runs."""
    machines: int
    """How many machines have room for one more."""
    more: int
    """How many more have room in all."""
    fragmented: Resources
    """What it asks for and is free on machines that have no room for it."""


class Headroom(BaseModel, frozen=True):
    """The fleet's free capacity, and what it is good for."""

    machines: int
    """Those that take new work."""
    resources: dict[str, ResourceRoom]
    shapes: tuple[ShapeRoom, ...]
    """What most tasks wait for; where little waits, what most attempts hold."""

"""What a keeper starts work with: the one interface of all drivers."""

from typing import Protocol

from domain.protocol import StartAttempt
from keeper.attempts import Launched, LaunchFailed


class Driver(Protocol):
    """Carries out what `keeper.attempts` decided; tells Exited, and Cleared after it.

    A driver knows an attempt from a successful `launch` until it has told Cleared. The other
    methods may name an attempt it does not know any more, and then do nothing.
    """

    def launch(self, start: StartAttempt) -> Launched | LaunchFailed:
        """Start it; returns just after the exec."""

    def look(self, attempt: str) -> None:
        """Tell Exited now if the main child has exited and nobody has noticed."""

    def terminate(self, attempt: str) -> None:
        """The stop signal to the whole tree; then watch until nothing is left."""

    def kill(self, attempt: str) -> None:
        """Kill the whole tree until nothing is left."""

    def freeze(self, attempt: str) -> None:
        """Let the whole tree stand still."""

    def thaw(self, attempt: str) -> None:
        """Let the whole tree go on."""

    def close(self) -> None:
        """The loop is about to end."""

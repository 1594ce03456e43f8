"""Which machines a round need not read back: those that it alone has changed, as its index has it.

A revision says who wrote a machine last. Where that was this partition's own claim, and what it
found there was known to its index too, the index has the outcome already. Decides no placement.
"""

from collections.abc import Mapping

from store.claims import Claimed


class Echoes:
    """By place, the revision up to which the index is right without having read it."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}

    @property
    def known(self) -> Mapping[str, int]:
        """Machines that bear just this revision hold no news."""
        return self._left

    def read(self, revision: int) -> None:
        """The index has caught up with everything below this revision."""
        self._left = {place: at for place, at in self._left.items() if at >= revision}

    def committed(self, claimed: Claimed, read_up_to: int) -> None:
        """These claims stand, and the index has taken their room.

        What a machine bore before must have been read, or been an echo itself; otherwise somebody
        else's change would be taken for known.
        """
        for place, before in claimed.before.items():
            if before < read_up_to or self._left.get(place) == before:
                self._left[place] = claimed.revision
            else:
                self._left.pop(place, None)

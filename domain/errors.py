"""Expected refusals of a request, mapped once to HTTP and once to ApplicationError."""

from domain.reasons import Reason


class DrystoneError(Exception):
    """An answer of "no" to a caller; never a bug of ours."""

    code = "refused"


class NotFoundError(DrystoneError):
    """The thing named is not known."""

    code = "not_found"


class ConflictError(DrystoneError):
    """The same key was used before with another body."""

    code = "conflict"


class InvalidError(DrystoneError):
    """The request does not fit; the text names the field and the limit."""

    code = "invalid"


class NeverFitsError(DrystoneError):
    """No machine of the fleet, empty, could hold the task."""

    code = "never_fits"

    def __init__(self, message: str, lost: dict[Reason, int]) -> None:
        super().__init__(message)
        self.lost = lost


class UnavailableError(DrystoneError):
    """Something we need (Temporal, the database) cannot be reached now; trying again may help."""

    code = "unavailable"


class BusyError(DrystoneError):
    """There is more than can be taken now; nothing was accepted, and asking again will help."""

    code = "busy"


class BacklogFullError(BusyError):
    """So many tasks wait for a machine that no more are taken until some have left."""

    code = "backlog_full"

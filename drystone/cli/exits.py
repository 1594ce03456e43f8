"""Exit codes of the commands: what a script may rely on."""

from enum import IntEnum


class Exit(IntEnum):
    """`run` adds the task's own code, and 128 + signal when it was killed."""

    OK = 0
    FAILED = 1
    """A task ran and failed; a command could not do what it was asked."""
    USAGE = 2
    """What was typed cannot be meant so: an option, an argument, or a file that holds no tasks."""
    REFUSED = 65
    """Understood, and refused: a task of a file whose fields do not fit, an id that stands for
    another task, a word that does not hold. Not for want of a machine: that is NOT_RUN."""
    NOT_FOUND = 67
    UNREACHABLE = 69
    """The API cannot be reached or cannot work now, or what answers there is not the API."""
    BUSY = 71
    """The API takes no more for now, and went on saying so: nothing was accepted."""
    NOT_RUN = 75
    """A task never ran: no machine could ever hold it, it ended while it waited, or its command
    could not be started (a shell says 127 or 126 then, which tasks may also say themselves)."""
    STILL_QUEUED = 76
    """`submit --wait --timeout`: time is up, and at least one task still waits for a machine."""
    STILL_RUNNING = 77
    """`submit --wait --timeout`: time is up, nothing waits any more, something still runs."""
    INTERRUPTED = 130
    """Ctrl-C; 128 + signal for other signals."""

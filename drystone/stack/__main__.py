"""`python -m drystone.stack`: the process behind `drystone up`. Reads options; decides nothing."""

import argparse
import asyncio
import sys
from pathlib import Path

from pydantic import ValidationError

from domain.misfit import told
from drystone.stack.child import DyingError
from drystone.stack.folder import FolderError, held, prepare
from drystone.stack.plan import PortInUseError, Wish, WishError, plan
from drystone.stack.supervisor import NotReadyError, Supervisor
from runtime.settings import VARIABLES

EXIT_CANNOT_START = 1
EXIT_USAGE = 2


def main() -> int:
    """The exit code: 0 after an orderly stop."""
    wish = _wish(sys.argv[1:])
    try:
        made = plan(wish)
        prepare(made.folder, make_parents=wish.data is None)
        with held(made.folder):
            asyncio.run(_run(Supervisor(made, _say)))
    except (FolderError, PortInUseError, NotReadyError, DyingError) as error:
        print(f"drystone up: {error}", file=sys.stderr, flush=True)
        return EXIT_CANNOT_START
    except WishError as error:
        print(f"drystone up: {error}", file=sys.stderr, flush=True)
        return EXIT_USAGE
    except ValidationError as error:
        print(f"drystone up: settings do not fit: {told(error, VARIABLES)}", file=sys.stderr)
        return EXIT_USAGE
    return 0


async def _run(supervisor: Supervisor) -> None:
    await supervisor.run()


def _say(line: str) -> None:
    print(line, flush=True)


def _wish(arguments: list[str]) -> Wish:
    parser = argparse.ArgumentParser(prog="drystone up")
    parser.add_argument("--data", type=lambda text: Path(text).expanduser().absolute())
    parser.add_argument("--api-port", type=int, default=Wish.api_port)
    parser.add_argument("--temporal-port", type=int, default=Wish.temporal_port)
    parser.add_argument("--ui-port", type=int, default=Wish.ui_port)
    parser.add_argument("--agent-port", type=int)
    parser.add_argument("--cpu")
    parser.add_argument("--memory")
    parser.add_argument("--machine")
    return Wish(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(main())

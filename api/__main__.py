"""`python -m api`: reads the settings and serves the REST API until told to stop."""

import argparse
import signal
import socket
import sys
from typing import Any

import uvicorn
from pydantic import ValidationError

from api.app import create_app
from api.closing import Closing
from domain.misfit import told
from runtime.settings import KEEP_ALIVE_S, VARIABLES, Settings
from runtime.telemetry import logger, set_up_logging

STOP_S_MAX = 5
BACKLOG = 2_048


class _Server(uvicorn.Server):
    """Tells the application before it waits for the answers that are still being made."""

    def __init__(self, config: uvicorn.Config, closing: Closing) -> None:
        super().__init__(config)
        self._closing = closing

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._closing.begin()
        await super().shutdown(sockets)


def server_config(settings: Settings, closing: Closing) -> uvicorn.Config:
    """How the API is served."""
    return uvicorn.Config(
        create_app(settings, closing),
        host=settings.api_host,
        port=settings.api_port,
        loop="uvloop",
        http="httptools",
        backlog=BACKLOG,
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=STOP_S_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
    )


def main() -> int:
    """The exit code: 0 after an orderly stop, 1 when it could not listen, 2 for bad settings."""
    given = _options()
    try:
        settings = Settings(**given)
    except ValidationError as error:
        print(f"drystone api: settings: {told(error, VARIABLES)}", file=sys.stderr)
        return 2
    set_up_logging(settings, "api")
    logger().info("api listens", address=settings.api_host, port=settings.api_port)
    closing = Closing()
    server = _Server(server_config(settings, closing), closing)
    # uvicorn raises the signal again once it has stopped in order.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        server.run()
    except KeyboardInterrupt:
        return 0
    return 0 if server.started else 1


def _options() -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="drystone api", description="The REST API.")
    parser.add_argument("--host", dest="api_host", help="address to listen on")
    parser.add_argument("--port", dest="api_port", type=int, help="port to listen on")
    parser.add_argument("--temporal", dest="temporal_address", help="ADDRESS:PORT of Temporal")
    parser.add_argument("--database", dest="database_url", help="URL of the ledger's database")
    return {name: value for name, value in vars(parser.parse_args()).items() if value is not None}


if __name__ == "__main__":
    sys.exit(main())

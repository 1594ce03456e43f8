"""The REST application: its parts, its routes, its error documents. Decides nothing itself."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from api.backlog import Backlog
from api.classes import FleetClasses
from api.closing import AnswerWhenCancelled, Closing
from api.gateway import Gateway
from api.ledger import LedgerReader
from api.logs import AgentLogs
from api.metrics import LatencyMeter, Metrics
from api.parts import Parts
from api.problems import install_problem_handlers
from api.routes import audit, clusters, drains, health, logs, machines, operators, submit, tasks
from api.schema import describe
from runtime.settings import Settings
from runtime.temporal import connect
from store.session import open_engine

DESCRIPTION = "Submit tasks, follow them, and see where they run and why they wait."


def create_app(settings: Settings, closing: Closing | None = None) -> FastAPI:
    """An application that finds Temporal and the ledger when it is first asked something.

    Once `closing` has begun, whatever waits answers at once.
    """
    metrics = Metrics()
    ending = closing or Closing()

    @asynccontextmanager
    async def living(app: FastAPI) -> AsyncIterator[None]:
        # Lazy: the API answers, with 503 where it must, while Temporal is away.
        client = await connect(settings, lazy=True)
        ledger = LedgerReader(open_engine(settings.database_url), settings.ledger_answer_s)
        agents = AgentLogs()
        app.state.parts = Parts(
            settings=settings,
            ledger=ledger,
            gateway=Gateway(client, settings),
            classes=FleetClasses(ledger),
            backlog=Backlog(ledger, settings.backlog_tasks_max),
            logs=agents,
            metrics=metrics,
            closing=ending,
        )
        yield
        await agents.close()
        ledger.close()

    app = FastAPI(
        title="Drystone",
        version="1",
        description=DESCRIPTION,
        lifespan=living,
        docs_url="/docs",
        redoc_url=None,
    )
    install_problem_handlers(app, settings.retry_after_s)
    for routes in (submit, tasks, logs, machines, clusters, drains, operators, audit, health):
        app.include_router(routes.router)
    app.add_middleware(AnswerWhenCancelled, closing=ending, retry_after_s=settings.retry_after_s)
    app.add_middleware(LatencyMeter, metrics=metrics)
    describe(app)
    return app

"""How alembic runs here: on the connection it is given, or on a URL (`alembic -x url=...`)."""

from alembic import context
from sqlalchemy import Connection

from store.session import open_engine, transaction
from store.tables import METADATA


def _run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=METADATA)
    with context.begin_transaction():
        context.run_migrations()


given: Connection | None = context.config.attributes.get("connection")
if given is not None:
    _run(given)
else:
    with transaction(open_engine(context.get_x_argument(as_dictionary=True)["url"])) as opened:
        _run(opened)

"""The Python client, sync and async, against a running Drystone."""

import pytest

import drystone
from domain.attempt import Phase
from domain.errors import ConflictError, InvalidError, NeverFitsError, NotFoundError
from domain.errors import UnavailableError as AwayError
from tests.cli.conftest import Up

SMALL = {"resources": {"cpu": "50m", "memory": "16Mi"}}


def task(script: str, **more: object) -> dict[str, object]:
    return {"command": ["sh", "-c", script], **SMALL, **more}


def test_a_task_is_submitted_waited_for_and_read(up: Up) -> None:
    with drystone.Client(up.environment["DRYSTONE_API_URL"]) as client:
        view = client.submit(task("echo out; echo err >&2"), key="any text that I like")
        assert (
            client.submit(task("echo out; echo err >&2"), key="any text that I like").id == view.id
        )
        ended = client.wait(view.id, timeout_s=60)
        assert ended.phase is Phase.SUCCEEDED
        assert b"".join(client.logs(view.id, stream="stderr")) == b"err\n"
        assert b"".join(client.logs(view.id, stream="stdout", offset=1)) == b"ut\n"
        assert view.id in [one.id for one in client.list(phase="SUCCEEDED").items]
        assert client.attempts(view.id).items[0].ending is not None
        assert "succeeded" in client.explain(view.id).summary


def test_refusals_are_exceptions_that_say_what(up: Up) -> None:
    with drystone.Client(up.environment["DRYSTONE_API_URL"]) as client:
        with pytest.raises(NeverFitsError) as never:
            client.submit({"command": ["true"], "resources": {"cpu": "9999"}})
        assert sum(never.value.lost.values()) == 1
        with pytest.raises(InvalidError, match="colour"):
            client.submit(task("true", colour="red"))
        client.submit(task("true", id="mine"))
        with pytest.raises(ConflictError):
            client.submit(task("false", id="mine"))
        with pytest.raises(NotFoundError):
            client.get("none-such")
        slow = client.submit(task("sleep 60", grace_s=1))
        with pytest.raises(TimeoutError):
            client.wait(slow.id, timeout_s=0.2)
        assert client.cancel(slow.id).key == slow.key


def test_an_api_that_is_not_there_is_unavailable() -> None:
    client = drystone.Client("http://127.0.0.1:9", retries=1)
    with pytest.raises(AwayError, match=r"127\.0\.0\.1:9"):
        client.submit(task("true"))


async def test_the_async_client_does_the_same(up: Up) -> None:
    async with drystone.AsyncClient(up.environment["DRYSTONE_API_URL"]) as client:
        view = await client.submit(
            task(
                'echo try $DRYSTONE_ATTEMPT; [ "$DRYSTONE_ATTEMPT" = 2 ]',
                retries={"failures": 1, "backoff": {"base_ms": 1}},
            )
        )
        # Followed over both attempts, from before the first has begun.
        said = b"".join([data async for data in client.logs(view.id, follow=True)])
        assert said == b"try 1\ntry 2\n"
        assert (await client.wait(view.id)).phase is Phase.SUCCEEDED
        assert (await client.explain(view.id)).phase is Phase.SUCCEEDED
        with pytest.raises(NotFoundError):
            _ = [data async for data in client.logs(view.id, attempt=7)]

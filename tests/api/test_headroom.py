"""What is free, told over HTTP."""

from tests.api.conftest import Desk


async def test_the_headroom_of_the_fleet_is_shown(desk: Desk) -> None:
    told = (await desk.http.get("/v1/headroom")).json()
    room = told["resources"]["cpu_milli"]
    assert told["machines"] >= 1
    assert room["free"] + room["closed"] + room["used"] >= room["capacity"] > 0

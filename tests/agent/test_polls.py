"""When silence of the polls is a reason to stop beating."""

from agent.polls import PollWatch

LEASE_MS = 60_000


def test_an_idle_poll_may_take_its_minute() -> None:
    watch = PollWatch(succeeded_ms=0)
    assert watch.healthy(LEASE_MS + 60_000, LEASE_MS)


def test_polls_that_fail_for_a_lease_are_not_healthy() -> None:
    watch = _failing(PollWatch(succeeded_ms=0), 5_000, 5_000 + LEASE_MS)
    assert watch.healthy(5_000 + LEASE_MS - 1, LEASE_MS)
    assert not watch.healthy(5_000 + LEASE_MS, LEASE_MS)


def test_one_poll_that_gets_through_is_enough() -> None:
    watch = _failing(PollWatch(succeeded_ms=0), 0, 2 * LEASE_MS)
    assert watch.after(1, 5, 2 * LEASE_MS).healthy(2 * LEASE_MS + 1, LEASE_MS)


def test_a_poll_that_waits_after_failures_counts_as_getting_through() -> None:
    watch = _failing(PollWatch(succeeded_ms=0), 0, 20_000)
    assert watch.healthy(20_000 + 45_000, LEASE_MS)


def test_without_any_news_of_polls_nothing_gets_through() -> None:
    assert not PollWatch(succeeded_ms=0).healthy(LEASE_MS + 71_000, LEASE_MS)


def _failing(watch: PollWatch, since_ms: int, until_ms: int) -> PollWatch:
    for now_ms in range(since_ms, until_ms + 1, 5_000):
        watch = watch.after(0, 1, now_ms)
    return watch

"""When silence of the polls is a reason to stop beating."""

from agent.polls import IDLE_POLL_MS, RETRIED_MS, STILL_FAILING_MS, PollWatch

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


def test_after_a_long_outage_a_poll_that_waits_is_known_once_the_server_answers() -> None:
    back_ms = 20 * LEASE_MS
    watch = _failing(PollWatch(succeeded_ms=0), 0, back_ms)
    assert watch.asks
    assert not watch.healthy(back_ms + STILL_FAILING_MS, LEASE_MS), "nothing says that it is back"
    watch = watch.reached(back_ms + 1_000)
    assert not watch.asks
    assert not watch.healthy(back_ms + RETRIED_MS - 1, LEASE_MS), "the poll may still wait to be"
    assert watch.healthy(back_ms + RETRIED_MS, LEASE_MS)
    idle_ms = back_ms + 1_000 + LEASE_MS + IDLE_POLL_MS
    assert not watch.healthy(idle_ms, LEASE_MS), "and should have come back long ago"


def test_a_server_that_answers_all_but_polls_keeps_nothing_alive() -> None:
    watch = PollWatch(succeeded_ms=0)
    for now_ms in range(0, 10 * LEASE_MS, 12_000):
        watch = watch.after(0, 1, now_ms).reached(now_ms + 1)
    assert not watch.healthy(now_ms + 11_999, LEASE_MS)


def test_without_failures_nothing_is_asked() -> None:
    watch = PollWatch(succeeded_ms=0)
    assert not watch.asks
    assert not watch.after(0, 1, 5).after(1, 0, 6).asks


def test_without_any_news_of_polls_nothing_gets_through() -> None:
    assert not PollWatch(succeeded_ms=0).healthy(LEASE_MS + 71_000, LEASE_MS)


def _failing(watch: PollWatch, since_ms: int, until_ms: int) -> PollWatch:
    for now_ms in range(since_ms, until_ms + 1, 5_000):
        watch = watch.after(0, 1, now_ms)
    return watch

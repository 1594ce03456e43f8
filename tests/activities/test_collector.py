"""The collector rests during a batch and is at work after it, whatever happens."""

import gc

import pytest

from activities.collector import uncollected


def test_it_rests_and_goes_on_even_after_an_error() -> None:
    @uncollected()
    def fails() -> None:
        raise TimeoutError(gc.isenabled())

    with pytest.raises(TimeoutError, match="False"):
        fails()
    assert gc.isenabled()


def test_blocks_that_overlap_leave_it_at_work() -> None:
    first, second = uncollected(), uncollected()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert gc.isenabled()

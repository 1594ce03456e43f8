"""No search for cyclic garbage while a batch is in hand. Decides nothing.

A round makes tens of thousands of rows that live until its end. The interpreter's collector, which
is set off by their number, would walk the whole heap for them again and again and find nothing:
that was a third of a round's time. What is not looked for meanwhile is bounded by the batch.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """For the length of the block, or of the function that it decorates.

    Of blocks that overlap, whoever found the collector at work sets it to work again.
    """
    at_work = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if at_work:
            gc.enable()

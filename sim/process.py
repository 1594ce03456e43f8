"""Processes that can be killed between any two steps, and work that goes on in such steps."""

from collections.abc import Callable, Generator
from random import Random
from typing import Any, TypeVar

from sim.clock import MS, Act, Clock
from sim.trace import Trace

Steps = Generator[None, None, Any]
"""Work in steps: at each `yield` its process may die, and the rest never happens."""
T = TypeVar("T")


class Process:
    """One process. Whatever it meant to do dies with it."""

    def __init__(self, name: str, clock: Clock, trace: Trace, rng: Random) -> None:
        self.name = name
        self.clock = clock
        self.trace = trace
        self.rng = rng
        self.up = True
        self.life = 0
        self.crash_per_step = 0.0
        """The chance that it dies at a step, as opposed to at an instant chosen from outside."""
        self.on_crash: Act = lambda: None

    def after(self, delay_us: int, act: Act) -> None:
        """Do it later, if this life lasts so long."""
        life = self.life

        def alive() -> None:
            if self.up and self.life == life:
                act()

        self.clock.after(delay_us, alive)

    def spawn(self, steps: Steps, done: Callable[[Any], None] = lambda _: None) -> None:
        """Carry out the steps one by one, some time apart."""
        self.after(self._pause_us(), lambda: self._advance(steps, done))

    def crash(self) -> None:
        """Die at once."""
        if self.up:
            self.up = False
            self.life += 1
            self.trace.line(self.name, "crash")
            self.on_crash()

    def restart(self) -> None:
        """Begin a new life; what it knows is its owner's business."""
        if not self.up:
            self.up = True
            self.trace.line(self.name, "restart")

    def _advance(self, steps: Steps, done: Callable[[Any], None]) -> None:
        try:
            next(steps)
        except StopIteration as stop:
            done(stop.value)
            return
        if self.crash_per_step and self.rng.random() < self.crash_per_step:
            self.crash()
            return
        self.spawn(steps, done)

    def _pause_us(self) -> int:
        return self.rng.randrange(MS // 10, 3 * MS)

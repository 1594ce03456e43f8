"""The connection between a keeper and its agent: ordered, broken once a message is lost."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from domain.protocol import AgentMessage, KeeperHello, KeeperMessage
from sim.clock import MS, SECOND, Clock
from sim.network import Network

if TYPE_CHECKING:
    from sim.agents import AgentShell
    from sim.keepers import KeeperShell

NOTICED_US_MAX = 15 * SECOND
"""By then each side has noticed that the other does not answer."""

Dialler = Callable[["KeeperShell", KeeperHello], "Socket | None"]


class Socket:
    """One connection, dialled by the keeper."""

    def __init__(
        self,
        number: int,
        keeper: "KeeperShell",
        agent: "AgentShell",
        clock: Clock,
        network: Network,
        rng: Random,
    ) -> None:
        self.number = number
        self.machine = keeper.machine.name
        self._keeper = keeper
        self._agent = agent
        self._clock = clock
        self._network = network
        self._rng = rng
        self._lives = (keeper.process.life, agent.process.life)
        self._broken: set[bool] = set()
        """The directions in which a message was lost: nothing follows it."""
        self._noticed = False
        self._last_us = {True: 0, False: 0}

    def to_agent(self, message: KeeperMessage) -> None:
        """From the keeper; its hello is the first."""
        self._send(True, lambda: self._agent.hears(self, message))

    def to_keeper(self, message: AgentMessage) -> None:
        """From the agent."""
        self._send(False, lambda: self._keeper.hears(self, message))

    def drop(self) -> None:
        """One side has died: the other sees the end, at once if the way is open."""
        self._broken = {True, False}
        self._notice(SECOND // 10)

    def _send(self, up: bool, arrive: Callable[[], Any]) -> None:
        if up in self._broken:
            return
        if self._blocked(up):
            self._break(up)
            return
        at_us = max(self._clock.now_us + self._rng.randrange(MS // 5, 5 * MS), self._last_us[up])
        self._last_us[up] = at_us

        def through() -> None:
            if self._blocked(up):
                self._break(up)
            elif self._alive(up):
                arrive()

        self._clock.after(at_us - self._clock.now_us, through)

    def _blocked(self, up: bool) -> bool:
        ends = (self._keeper.process.name, self._agent.process.name)
        source, target = ends if up else ends[::-1]
        return (source, target) in self._network.blocked

    def _alive(self, up: bool) -> bool:
        now = (self._keeper.process.life, self._agent.process.life)
        return up not in self._broken and now == self._lives

    def _break(self, up: bool) -> None:
        """The other direction still works until somebody notices."""
        self._broken.add(up)
        self._notice(NOTICED_US_MAX)

    def _notice(self, within_us: int) -> None:
        if not self._noticed:
            self._noticed = True
            for end in (self._keeper.hung_up, self._agent.hung_up):
                self._clock.after(self._rng.randrange(1, within_us), partial(self._hang_up, end))

    def _hang_up(self, end: "Callable[[Socket], None]") -> None:
        self._broken = {True, False}
        end(self)

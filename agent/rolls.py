"""The agent's word on what it holds on a machine: the list behind a running digest. Reads only."""

from agent.admission import State, counted
from domain.audit import ATTEMPTS_PER_ROLL_MAX, Roll, RollAnswer, RollCall


def roll_answer(state: State, call: RollCall, room: int = ATTEMPTS_PER_ROLL_MAX) -> RollAnswer:
    """Machines it does not know are left out, and those for whose attempts there is no room."""
    rolls: list[Roll] = []
    for name in call.machines:
        machine = state.machines.get(name)
        if machine is None:
            continue
        attempts = tuple(sorted(attempt.id for attempt in counted(state, machine)))
        if len(attempts) > room:
            break
        room -= len(attempts)
        rolls.append(Roll(machine=name, attempts=attempts))
    return RollAnswer(instance=state.instance, epoch=state.epoch, rolls=tuple(rolls))

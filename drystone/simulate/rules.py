"""The rules of a demand in the words of the domain. Knows neither files nor the engine."""

from domain.constraint import Constraints, LabelTerm, Operator, Spread, Toleration
from drystone.simulate.records import Demand
from placement.demand import GPU_MODEL_LABEL


def constraints_of(demand: Demand, spread: Spread = Spread.NONE) -> Constraints:
    """What the engine is asked beyond room. Services are spread over `spread`.

    Raises pydantic's ValidationError where the domain has no such rule.
    """
    labels = [LabelTerm(key=key, values=(value,)) for key, value in demand.labels]
    if demand.gpu_models:
        term = LabelTerm(key=GPU_MODEL_LABEL, operator=Operator.IN, values=demand.gpu_models)
        labels.append(term)
    return Constraints(
        clusters=demand.clusters,
        zones=demand.zones,
        labels=(*labels, *demand.rules.labels),
        tolerations=tuple(Toleration(key=key, value=value) for key, value in demand.tolerations),
        service=demand.service or None,
        max_per_machine=demand.max_per_machine or None,
        spread=spread if demand.service else Spread.NONE,
        anti_affinity=demand.rules.anti_affinity,
        near=demand.rules.near,
        apart=demand.rules.apart,
        limits=demand.rules.limits,
        even=demand.rules.even,
    )

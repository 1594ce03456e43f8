"""The least a durable task can cost: one workflow, one signal. The benchmark compares with it."""

from temporalio import workflow


@workflow.defn
class FloorWorkflow:
    """Waits for its one signal and ends: nine history events, nothing of a task's life."""

    def __init__(self) -> None:
        self._told = False

    @workflow.run
    async def run(self) -> None:
        """Ends once told."""
        await workflow.wait_condition(lambda: self._told)

    @workflow.signal
    def tell(self) -> None:
        """The end of the wait."""
        self._told = True

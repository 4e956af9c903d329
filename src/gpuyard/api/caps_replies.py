"""Budgets and caps, as both listings of tenants show them."""

from pydantic import BaseModel, Field


class BudgetReply(BaseModel):
    """A budget of GPU time over a window: spent, promised and left are all of it."""

    gpu_hours: float
    spent_gpu_hours: float = Field(description="In this window, what runs has used so far included.")
    promised_gpu_hours: float = Field(description="What runs may still use, up to its time limits.")
    left_gpu_hours: float = Field(
        description="What new jobs may ask for; below 0 where the budget was made smaller than what is promised."
    )
    window_ms: int
    window_end_ms: int = Field(description="When the window ends and the budget is whole again.")


class CapsReply(BaseModel):
    """A tenant's budget and caps; null where there is none."""

    budget: BudgetReply | None = None
    max_running_jobs: int | None = None
    max_gpus_per_job: float | None = None
    max_gpus_per_user: float | None = Field(default=None, description="Of each user below the tenant.")
    most_gpus_of_a_user: float | None = Field(
        default=None, description="What the user below it has that uses most, where max_gpus_per_user is set."
    )

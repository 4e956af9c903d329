"""The duty `people`: heeds the people of a configuration that another server has put in force."""

from collections.abc import Sequence

from gpuyard.control.access.people_in_force import LOOK_S, PeopleInForce
from gpuyard.control.duties.duty import Duty, Turn

CLOSE_S = 2.0


def duties(people: PeopleInForce, shared: bool) -> Sequence[Duty]:
    """Of each server of several; one that is alone puts every version in force itself."""
    if not shared:
        return ()

    def look(turn: Turn) -> None:
        people.round(turn.rest)

    duty = Duty(
        "people",
        look,
        every_s=LOOK_S,
        first_s=LOOK_S,
        undone="people stay as they are: newer ones could not be looked up",
        close_s=CLOSE_S,
    )
    return (duty,)

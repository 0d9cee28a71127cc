"""Checks of the parameters of components: each refuses a value by the parameter's name."""

from collections.abc import Sequence
from typing import Any, get_args


def check_choice(name: str, value: str, allowed: Any) -> None:
    """
    Refuse a value that is none of a Literal's.

    :param name: The parameter's name, for the message.
    :param value: Its value.
    :param allowed: The Literal.
    :raises ValueError: If the value is not allowed.
    """
    if value not in get_args(allowed):
        raise ValueError(f"{name} must be one of {get_args(allowed)}, got {value!r}")


def check_at_least(minimum: int, **parameters: int | None) -> None:
    """
    Refuse whole numbers that are too small; None means "not set".

    :param minimum: The smallest allowed value.
    :param parameters: Values by the names of their parameters.
    :raises ValueError: If a value is below the minimum, or no whole number.
    """
    for name, value in parameters.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < minimum):
            raise ValueError(f"{name} must be a whole number of at least {minimum}, got {value!r}")


def check_positive(**parameters: float | None) -> None:
    """
    Refuse numbers that are not above zero, such as time limits; None means "not set".

    :param parameters: Values by the names of their parameters.
    :raises ValueError: If a value is not positive, or no number.
    """
    for name, value in parameters.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
            raise ValueError(f"{name} must be positive, got {value!r}")


def check_scoring(scales: Sequence[int], **weights: float) -> None:
    """
    Refuse what evidence cannot be scored with.

    :param scales: Radii of the surroundings.
    :param weights: Weights by the names of their parameters.
    :raises ValueError: If a radius is no positive whole number, or a weight is negative.
    """
    if not are_positive(scales):
        raise ValueError(f"scales must be positive whole numbers, got {scales!r}")
    for name, weight in weights.items():
        if weight < 0:
            raise ValueError(f"{name} must be at least 0, got {weight!r}")


def are_positive(values: Any) -> bool:
    """
    Tell whether values are positive whole numbers.

    :param values: What should be a sequence of them.
    :returns: False if it is none, or if one of them is not.
    """
    return isinstance(values, Sequence) and not any(
        isinstance(value, bool) or not isinstance(value, int) or value < 1 for value in values
    )

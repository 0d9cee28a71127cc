"""Components inside of components: warmed up once, when they are first needed, and closed if they were."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from haystack_adv_retrieval.calls import Call, Steps


def _warm_up(part: Any) -> Steps[None]:
    if hasattr(part, "warm_up"):
        yield Call(part, "warm_up")


def _close(part: Any) -> Steps[None]:
    if hasattr(part, "close"):
        yield Call(part, "close")


@dataclass
class Nested:
    """
    A component that another one uses, as steps for `drive`.

    :param part: The component.
    :param prepare: How to warm it up.
    :param release: How to close it.
    """

    part: Any
    prepare: Callable[[Any], Steps[None]] = _warm_up
    release: Callable[[Any], Steps[None]] = _close
    _is_warm: bool = False

    def warm_up(self) -> Steps[None]:
        """Warm the component up, unless it is."""
        if not self._is_warm:
            yield from self.prepare(self.part)
            self._is_warm = True

    def close(self) -> Steps[None]:
        """Close the component if it was warmed up."""
        if self._is_warm:
            yield from self.release(self.part)
            self._is_warm = False

    def run(self, **inputs: Any) -> Steps[dict[str, Any]]:
        """Run the component, warm."""
        yield from self.warm_up()
        outputs: dict[str, Any] = yield Call(self.part, "run", inputs)
        return outputs

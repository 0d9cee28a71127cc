"""A component around a retriever, which takes whatever inputs the retriever takes."""

import inspect
from typing import Any, cast

from haystack import component, default_to_dict
from haystack.core.component import Component
from haystack.core.serialization import component_to_dict

from haystack_adv_retrieval.calls import Call, Steps, drive, drive_async


class WrappedRetriever:
    """
    Base of components that run a retriever with filters of their own making.

    :param retriever: Any component with an input `filters` and an output `documents`.
    :raises ValueError: If the retriever is no such component.
    """

    def __init__(self, retriever: Any) -> None:
        inputs, outputs = (
            getattr(getattr(retriever, sockets, None), "_sockets_dict", {})
            for sockets in ("__haystack_input__", "__haystack_output__")
        )
        if "filters" not in inputs or "documents" not in outputs:
            raise ValueError(f"retriever needs an input `filters` and an output `documents`, got {retriever!r}")
        self.retriever = retriever
        for name, socket in inputs.items():
            if name != "filters":
                component.set_input_type(cast(Component, self), name, socket.type, socket.default_value)

    def to_dict(self) -> dict[str, Any]:
        """Serialize the component."""
        parameters = {
            name: getattr(self, name) for name in inspect.signature(type(self).__init__).parameters if name != "self"
        }
        return default_to_dict(self, **parameters | {"retriever": component_to_dict(self.retriever, "retriever")})

    def warm_up(self) -> None:
        """Warm up the retriever."""
        drive(self._lifecycle("warm_up"))

    async def warm_up_async(self) -> None:
        """Warm up the retriever, asynchronously."""
        await drive_async(self._lifecycle("warm_up"))

    def close(self) -> None:
        """Close the retriever."""
        drive(self._lifecycle("close"))

    async def close_async(self) -> None:
        """Close the retriever, asynchronously."""
        await drive_async(self._lifecycle("close"))

    def _lifecycle(self, method: str) -> Steps[None]:
        if hasattr(self.retriever, method):
            yield Call(self.retriever, method)

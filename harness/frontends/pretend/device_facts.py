"""What a pretended GPU says of itself: facts of its product, and an error for what is not known."""

# ruff: noqa: ANN401 - facts have several types

from __future__ import annotations

from typing import Any

_UNKNOWN = "is not known to triage, and a guess would decide what is launched"


class UnknownFactError(RuntimeError):
    """The launch code asked for a fact of the GPU that is not known."""

    def __init__(self, fact: str, product: str) -> None:
        super().__init__(f"the launch code asks for {fact} of {product}, which {_UNKNOWN}")


class DeviceProperties:
    """As `torch.cuda.get_device_properties` gives them: memory and cache in bytes."""

    def __init__(self, facts: dict[str, Any]) -> None:
        major, minor = divmod(facts["capability"], 10)
        self.name = facts["name"]
        self.major, self.minor = major, minor
        self.warp_size = 32
        self.regs_per_multiprocessor = facts["registers_per_sm"]
        self.shared_memory_per_block = 49152
        self.shared_memory_per_block_optin = facts["max_shared"]
        self.shared_memory_per_multiprocessor = facts["shared_per_sm"]
        self.max_threads_per_multi_processor = facts["threads_per_sm"]
        self.max_threads_per_block = 1024
        self.is_multi_gpu_board = 0
        # ROCm's; torch has it, and empty, for other GPUs too.
        self.gcnArchName = ""
        self._may_be_unknown = {
            "multi_processor_count": facts["multiprocessors"],
            "total_memory": facts["memory"],
            "L2_cache_size": facts["l2_cache"],
            "is_integrated": facts["integrated"],
            "clock_rate": None,
            "memory_clock_rate": None,
            "memory_bus_width": None,
            "pci_bus_id": None,
            "pci_device_id": None,
            "pci_domain_id": None,
            "uuid": None,
        }

    def __getattr__(self, name: str) -> Any:
        """One of the facts that are not known of every product.

        Raises:
            UnknownFactError: not of this one.
        """
        if name not in self.__dict__.get("_may_be_unknown", ()):
            message = f"the properties of a device have no {name!r}"
            raise AttributeError(message)
        value = self._may_be_unknown[name]
        if value is None:
            raise UnknownFactError(name, self.name)
        return value


class DriverProperties(dict[str, Any]):
    """As the utilities of Triton's driver give them."""

    def __init__(self, facts: dict[str, Any]) -> None:
        super().__init__(
            max_shared_mem=facts["max_shared"], max_num_regs=facts["registers_per_sm"], warpSize=32
        )
        self._product = facts["name"]
        if facts["multiprocessors"] is not None:
            self["multiprocessor_count"] = facts["multiprocessors"]

    def __missing__(self, name: str) -> Any:
        """Clock rates and bus widths, for example.

        Raises:
            UnknownFactError: always.
        """
        raise UnknownFactError(name, self._product)

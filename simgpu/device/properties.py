"""What ``torch.cuda.get_device_properties`` tells of a GPU, from the tables of CUDA's programming guide."""

import uuid
from dataclasses import dataclass, field

# By compute capability: threads and bytes of shared memory of a multiprocessor. A capability that is not listed has
# those of the last one below it.
_MULTIPROCESSORS = {
    (6, 0): (2048, 65536),
    (6, 1): (2048, 98304),
    (7, 0): (2048, 98304),
    (7, 5): (1024, 65536),
    (8, 0): (2048, 167936),
    (8, 6): (1536, 102400),
    (8, 7): (1536, 167936),
    (8, 9): (1536, 102400),
    (9, 0): (2048, 233472),
    (10, 0): (2048, 233472),
    (12, 0): (1536, 102400),
}
_RESERVED = 1024  # bytes of a block's shared memory that the system keeps, from 8.0 on


@dataclass(frozen=True)
class Properties:
    """Name, compute capability, sizes in bytes, numbers of multiprocessors, threads and registers; pci_bus_id, uuid.

    index: the number of the GPU, from which the last two are made.
    """

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    L2_cache_size: int
    index: int = field(default=0, repr=False)
    warp_size: int = 32
    max_threads_per_block: int = 1024
    regs_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 49152
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    pci_domain_id: int = 0
    pci_device_id: int = 0
    gcnArchName: str = field(default="", repr=False)

    @property
    def _multiprocessor(self) -> tuple[int, int]:
        known = [capability for capability in _MULTIPROCESSORS if capability <= (self.major, self.minor)]
        return _MULTIPROCESSORS[max(known, default=min(_MULTIPROCESSORS))]

    @property
    def max_threads_per_multi_processor(self) -> int:
        """The most threads that a multiprocessor holds at once."""
        return self._multiprocessor[0]

    @property
    def shared_memory_per_multiprocessor(self) -> int:
        """The bytes of shared memory of a multiprocessor."""
        return self._multiprocessor[1]

    @property
    def shared_memory_per_block_optin(self) -> int:
        """The most bytes of shared memory that a block can ask for."""
        if (self.major, self.minor) >= (8, 0):
            return self.shared_memory_per_multiprocessor - _RESERVED
        return self.shared_memory_per_multiprocessor if self.major == 7 else self.shared_memory_per_block

    @property
    def pci_bus_id(self) -> int:
        """A number for each GPU."""
        return self.index + 1

    @property
    def uuid(self) -> uuid.UUID:
        """The same for the same GPU in every run."""
        return uuid.UUID(int=self.index)

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // 2**20}MB, multi_processor_count={self.multi_processor_count}, "
            f"uuid={self.uuid}, L2_cache_size={self.L2_cache_size // 2**20}MB)"
        )

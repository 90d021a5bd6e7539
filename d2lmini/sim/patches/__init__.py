"""Everything that is replaced in torch, so that its Python parts know of simulated GPUs."""

"""Generators that belong to a place in a run, not to its past.

What is random in step 4000 comes from a generator seeded by (seed, purpose, 4000). So nothing about randomness has
to be saved for a run to resume, processes agree without talking to each other, and asking for more noise in one step
does not change the next.
"""

from __future__ import annotations

import zlib

import numpy as np
import torch


def generator_for(
    seed: int,  # of the run, a whole number from 0
    purpose: str,  # such as "tasks"; different purposes are independent
    *place: int,  # such as the step and the rank
    device: torch.device | str = "cpu",
) -> torch.Generator:
    """A generator for one purpose at one place."""
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        raise ValueError(f"the seed must be a whole number from 0, got {seed!r}")
    words = np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), *place]).generate_state(2, np.uint32)
    return torch.Generator(device=device).manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)

"""From a kernel and rows to a prior of latents: exact, or by fewer numbers than pairs of rows."""

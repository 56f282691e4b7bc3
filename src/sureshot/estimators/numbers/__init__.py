"""What only targets that are numbers need: checks and scales, mixtures of normals, intervals."""

"""likelihoods."""

"""From a likelihood and a prior to a posterior: mean field, Gibbs, Laplace, natural gradients, least squares."""

"""Gaussian latents under Gaussian sites: priors, posteriors, evidence; nothing here knows a likelihood."""

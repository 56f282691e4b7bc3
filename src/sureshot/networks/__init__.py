"""Networks: backbones, and generators that belong to a place in a run."""

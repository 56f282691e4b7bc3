"""Few-shot learning: tasks, backbones, learners, meta-training and evaluation."""

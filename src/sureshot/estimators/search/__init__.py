"""`KernelSearchClassifier`."""

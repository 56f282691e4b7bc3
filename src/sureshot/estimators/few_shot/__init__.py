"""`FewShotClassifier`."""

"""`GPClassifier`: what it chooses, one Gaussian process, an average of several, fitting and updating."""

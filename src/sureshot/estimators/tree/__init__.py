"""`TreeGPClassifier`."""

"""Classifiers under a protocol, and the scores that come of it.

`sessions` runs one method through classes that arrive in sessions, `methods` makes methods by name, `session_study`
runs several methods with several seeds. `streams` asks any estimator with `partial_fit` about each batch of a stream
before it is learnt.
"""

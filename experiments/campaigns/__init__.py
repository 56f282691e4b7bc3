"""Campaigns: experiments of many cells, each run and kept on its own.

A *cell* is a name, settings and a function that runs it in a folder (`cells`); for few-shot learners it is one learner
under one training and one or more evaluations (`few_shot`). Its result is one record (`archive`); a cell whose record
is there is not run again, one that was interrupted resumes from its last checkpoint, and several processes may work on
the same campaign at once. `grids` names the campaigns' cells and `report` makes tables of what is there.
"""

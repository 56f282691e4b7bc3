"""Campaigns: experiments of many cells, each trained, evaluated and kept on its own.

A *cell* is one learner under one training and one or more evaluations (`cells`). Its result is one JSON file; a cell
whose file is there is not run again, one that was interrupted goes on from its last checkpoint, and several processes
may work on the same campaign at once. `grids` names the campaigns' cells and `report` makes tables of what is there.
"""

"""Rows as estimators take them: readers, kinds of columns, labelled rows, ids, folds, scalings."""

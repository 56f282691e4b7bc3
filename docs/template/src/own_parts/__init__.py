"""A backbone, two learners and two data sets for sureshot; pyproject.toml has the names by which it finds them."""

"""A backbone, two learners and a data set for sureshot; pyproject.toml has the names by which it finds them."""

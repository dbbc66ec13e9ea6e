# The package as it is installed, for mypy: pyproject.toml takes it from the folder shell/.
from shell import *  # noqa: F403

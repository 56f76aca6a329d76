"""Reads the policy that a configuration names. This is an edge."""

from pathlib import Path

from gateway.config.config import Config
from gateway.config.sections import ConfigError
from router.policy.policy import DEFAULT_POLICY, Policy, PolicyError, parse_policy


def load_policy(config: Config) -> Policy:
    """Loads the configured policy, or the default one.

    Raises `ConfigError` if the file cannot be read, or is no valid policy for these backends.
    """
    path = config.policy_path
    if path is None:
        return DEFAULT_POLICY
    models = {backend.options.model for backend in config.backends}
    try:
        return parse_policy(Path(path).read_bytes(), path, models)
    except OSError as error:
        raise ConfigError(f"policy_path {path!r}: {error.strerror}") from error
    except PolicyError as error:
        raise ConfigError(f"policy_path: {error}") from error

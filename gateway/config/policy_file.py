"""Reads the policy that a configuration names. This is an edge."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from backends.contract import BackendGroup
from gateway.config.backend_kinds import BackendConfig, SimulatedConfig
from gateway.config.config import Config
from gateway.config.sections import ConfigError
from router.policy.document import Problem
from router.policy.policy import DEFAULT_POLICY, Policy, PolicyError, parse_policy
from router.policy.slips import Known, slips_of


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


def named(paths: Sequence[Path]) -> dict[str, Path]:
    """Returns policies' files by the names to show: the whole path where two have one name."""
    times = Counter(path.name for path in dict.fromkeys(paths))
    return {path.name if times[path.name] == 1 else str(path): path for path in paths}


def policy_slips(config: Config, policy: Policy) -> tuple[Problem, ...]:
    """Finds what is likely a slip in the configured policy, which `load_policy` returned."""
    path = config.policy_path
    if path is None:
        return ()
    known = Known(
        tenants={tenant.id for tenant in config.tenants},
        tiers=config.tiers,
        models={backend.options.model for backend in config.backends},
        backends={backend.name: group_of(backend) for backend in config.backends},
    )
    return slips_of(policy, Path(path).read_bytes(), path, known)


def group_of(backend: BackendConfig) -> BackendGroup:
    """Returns the group of a configured backend."""
    return backend.group if isinstance(backend, SimulatedConfig) else backend.options.group

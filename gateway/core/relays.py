"""Holds the relays of the configuration, by path and model. This is an edge."""

from collections.abc import Iterable

from backends.relay.options import RelayedPath, RelayOptions
from backends.relay.relay import Relay
from gateway.config.sections import ConfigError
from gateway.wire.errors import ProtocolError


class Relays:
    """Finds the server of a model at a path that is passed on."""

    def __init__(self, options: Iterable[RelayOptions]) -> None:
        """Makes them inside the event loop; raises `ConfigError` if one cannot be used."""
        self._relays: dict[tuple[str, str], Relay] = {}
        for each in options:
            try:
                self._relays[each.path, each.model] = Relay(each)
            except ValueError as error:
                raise ConfigError(f"relays: {each.path} {each.model!r}: {error}") from error

    def has(self, path: str) -> bool:
        """Says whether any server answers this path."""
        return any(known == path for known, _ in self._relays)

    def find(self, path: RelayedPath, model: str) -> Relay:
        """Returns the relay of a model, or raises `ProtocolError`."""
        relay = self._relays.get((path, model))
        if relay is None:
            known = ", ".join(name for served, name in self._relays if served == path)
            message = f"The model '{model[:80]}' does not exist. Models for {path}: {known}."
            raise ProtocolError("model_not_found", message, param="model")
        return relay

    async def close(self) -> None:
        """Closes all connections."""
        for relay in self._relays.values():
            await relay.close()

    def models(self) -> list[str]:
        """Returns the models' ids, each once."""
        return [*dict.fromkeys(model for _, model in self._relays)]

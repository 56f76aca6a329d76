"""Defines what the configuration of every kind of backend has, and how a backend is made of it."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from backends.contract import Backend, BackendGroup, BackendInfo

Seconds = Annotated[float, Meta(gt=0, le=86_400)]


class BackendOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holds the options that every kind of backend has."""

    model: str  # the id clients pin it by
    window_tokens: int = 131_072  # prompt and output together
    max_output_tokens: int = 32_768

    def info(self, name: str, group: BackendGroup, **more: Any) -> BackendInfo:
        """Describes a backend with these options; `more` are further fields of `BackendInfo`."""
        return BackendInfo(
            name=name,
            model=self.model,
            group=group,
            window_tokens=self.window_tokens,
            max_output_tokens=self.max_output_tokens,
            **more,
        )


class BackendKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """Configures a backend: each kind adds its tag, a name and its options."""

    def make(self) -> Backend:
        """Makes the backend; must run inside the event loop.

        Raises OSError or ValueError if the options are invalid, or name what is not there.
        """
        raise NotImplementedError

    def secrets(self) -> tuple[str, ...]:
        """Reads what the options only name, such as a file's keys: with others it is a new backend.

        Raises OSError or ValueError if it is not there.
        """
        return ()

"""Deliberately broken copies of a block: a proof that does not fail on them would prove nothing."""

import contextlib
import importlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest import mock

__all__ = ["Mutation", "mutated"]


@dataclass(frozen=True)
class Mutation:
    """One change of one module's source.

    Parameters
    ----------
    module : str
        Its name below ``mrc_rtl``.
    old, new : str
        Text that must stand in it once, and what stands there instead.
    """

    module: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.module}: {self.old!r} becomes {self.new!r}"


def _broken_copy(mutation: Mutation) -> tuple[ModuleType, dict[str, Any]]:
    """Return the module, and what its changed source defines."""
    module = importlib.import_module(f"mrc_rtl.{mutation.module}")
    source = inspect.getsource(module)
    found = source.count(mutation.old)
    if found != 1:
        raise LookupError(f"{mutation.module} must hold {mutation.old!r} once, holds it {found} times")
    copy = ModuleType(module.__name__)
    copy.__dict__.update(__package__=module.__package__, __file__=module.__file__)
    exec(compile(source.replace(mutation.old, mutation.new), str(module.__file__), "exec"), copy.__dict__)
    return module, {
        name: value
        for name, value in vars(copy).items()
        if getattr(value, "__module__", None) == module.__name__ and not name.startswith("__")
    }


@contextlib.contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    """Let every module that uses what the mutated one defines use the broken copy, while the block runs.

    Raises
    ------
    LookupError
        The text is not there once: the block has changed, and the mutation has to follow.
    """
    module, definitions = _broken_copy(mutation)
    originals = {name: getattr(module, name) for name in definitions}
    users = [user for name, user in list(sys.modules.items()) if name.startswith(("mrc_rtl", "formal"))]
    with contextlib.ExitStack() as stack:
        for user in users:
            for name, original in originals.items():
                if vars(user).get(name) is original:
                    stack.enter_context(mock.patch.object(user, name, definitions[name]))
        yield

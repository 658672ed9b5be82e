"""What the NICs of a run are made of: kinds by name, and mixtures of them.

Source: design.md 3; interfaces.md, ``mrc run``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mrc_host.errors import ConfigError, MrcError
from mrc_host.nic.base import Nic
from mrc_host.nic.options import MacOptions, MemoryOptions
from mrc_rtl.config import PLANE_RECEIVE_BITS, NicConfig

__all__ = [
    "NIC_FACTORIES",
    "NicFactory",
    "NicKinds",
    "NicRequest",
    "model_nic",
    "verilated_nic",
]


@dataclass(frozen=True)
class NicRequest:
    """What a NIC of the run must be like.

    Parameters
    ----------
    host : int
        Its number.
    config : NicConfig
        Sizes of the engine.
    mac : MacOptions
        Rate and transmit FIFO of its ports.
    memory : MemoryOptions
        Its host memory.
    progress : callable
        Gets a line for each step of a build.
    hosts : int
        Hosts of the run.
    seed : int
        Of the run.
    model : mapping
        Options of model NICs, by the names of ``mrc_host.model.options``.
    """

    host: int
    config: NicConfig
    mac: MacOptions
    memory: MemoryOptions
    progress: Callable[[str], None]
    hosts: int = 1
    seed: int = 0
    model: Mapping[str, object] = field(default_factory=dict)


NicFactory = Callable[[NicRequest], Nic]
"""Makes a NIC."""


def verilated_nic(request: NicRequest) -> Nic:
    """Make a NIC of verilated gateware.

    Raises
    ------
    ConfigError
        A link is faster than a plane of the gateware receives.
    """
    from mrc_host.nic.verilated import VerilatedNic

    limit = PLANE_RECEIVE_BITS * 1000 / request.config.clock_ps
    if request.mac.gbps > limit:
        raise ConfigError(
            "fabric.rate_gbps",
            f"at most {limit:g} for gateware, whose planes receive {PLANE_RECEIVE_BITS} bits in a cycle of "
            f"{request.config.clock_ps} ps; nic.parameters.clock_ps or --nic model carry more",
            float(request.mac.gbps),
        )
    return VerilatedNic(request.config, request.mac, request.memory, progress=request.progress)


def model_nic(request: NicRequest) -> Nic:
    """Make a NIC that is the golden model."""
    from mrc_host.model.nic import ModelNic
    from mrc_host.model.options import ModelOptions

    return ModelNic(
        request.config,
        request.mac,
        request.memory,
        options=ModelOptions.from_mapping(request.model),
        seed=request.seed << 16 | request.host,
    )


NIC_FACTORIES: dict[str, NicFactory] = {"rtl": verilated_nic, "model": model_nic}
"""Kinds of NIC by name."""


@dataclass(frozen=True)
class NicKinds:
    """Makes the NICs of a run from the names of their kinds.

    With several kinds the hosts are divided into as many blocks of neighbours, as equal as possible: of four
    hosts ``rtl,model`` makes hosts 0 and 1 of gateware and hosts 2 and 3 models.

    Parameters
    ----------
    names : tuple of str
        Kinds, see :data:`NIC_FACTORIES`.
    """

    names: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> NicKinds:
        """Read ``rtl``, ``model``, or a list with commas.

        Raises
        ------
        MrcError
            A kind is not known.
        """
        names = tuple(part.strip() for part in text.split(","))
        for name in names:
            if name not in NIC_FACTORIES:
                known = " or ".join(NIC_FACTORIES)
                raise MrcError(f"--nic must be {known} in this build, or several with commas, got {text!r}")
        return cls(names)

    @property
    def text(self) -> str:
        """The kinds as they are written."""
        return ",".join(self.names)

    @property
    def has_gateware(self) -> bool:
        """Whether any of them is verilated gateware."""
        return any(NIC_FACTORIES[name] is verilated_nic for name in self.names)

    def kind_of(self, host: int, hosts: int) -> str:
        """Kind of a host's NIC."""
        return self.names[host * len(self.names) // hosts]

    def __call__(self, request: NicRequest) -> Nic:
        """Make the NIC of a host."""
        return NIC_FACTORIES[self.kind_of(request.host, request.hosts)](request)

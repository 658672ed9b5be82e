"""The one object that sizes a NIC.

Source of the sizes: the profile's *small*, *default* and *large* configurations and the quickstart's core.
"""

from dataclasses import dataclass, fields, replace

__all__ = ["ConfigurationError", "NicConfig", "PLANE_RECEIVE_BITS", "QP_NUMBER_BASE", "TICK_PS"]

#: One timestamp tick of TSETH in picoseconds (128 ns).
TICK_PS = 128_000

#: Bits that a plane receives in a cycle, whatever the core's width.
PLANE_RECEIVE_BITS = 64

#: QP numbers of this NIC are ``QP_NUMBER_BASE + index``; 0 to 2 are reserved (2: endpoint operations).
QP_NUMBER_BASE = 0x100


class ConfigurationError(ValueError):
    """A value of :class:`NicConfig` is outside its range; the text names value and range."""


def _power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


@dataclass(frozen=True, kw_only=True)
class NicConfig:
    """Sizes of one NIC engine; every block takes this object and nothing else to size itself.

    Parameters
    ----------
    planes : int
        Ethernet ports, one network plane each, 1 to 8.
    data_width : int
        Width of the core data path and of every port in bits: 64, 128, 256 or 512.
    clock_ps : int
        Core clock period in ps; divides 128,000 (the 128 ns tick).
    mtu : int
        Largest payload of a packet in bytes: 256, 512, 1024, 2048 or 4096.
    qps : int
        Queue pairs, a power of two from 2 to 256.
    mpr_psns : int
        PSNs a responder tracks (and a requester keeps in flight), a power of two from 128 to 4096.
    evs_per_plane : int
        Entropy values of a QP on one plane, 1 to 32.
    ev_profiles : int
        Arrays of entropy values that QPs can refer to, a power of two.
    send_queue_depth, receive_queue_depth : int
        Work requests per QP held on chip, powers of two from 2 to 1024.
    memory_regions : int
        Entries of the memory region table, a power of two from 2 to 1024.
    completion_queues : int
        Completion queues, a power of two from 2 to 64.
    immediates : int
        Immediates stashed per QP, a power of two from 32 (the specification's minimum).
    receive_buffer_bytes : int
        Packet buffer of one plane in bytes, a power of two that holds at least two packets of one MTU.
    transmit_slots : int
        Packets held between payload fetch and bind, a power of two from 2 to 16.
    placements : int
        Packets whose memory writes may be outstanding, a power of two from 2 to 16.
    address_width : int
        Width of the AXI4 address in bits, 32 to 64.
    congestion_control : bool
        Adds a congestion window for every QP; no gates and no block RAM when false.
    loss_inference : bool
        SACKs prove losses (RACK); without, timers alone find them, with no gates.
    go_back_n : bool
        Adds the QP type go-back-N with an in-order responder, the single-path baseline; no gates when false.
    trace : bool
        Adds the stream of trace records; no gates when false.

    Raises
    ------
    ConfigurationError
        A value is out of range.
    """

    planes: int = 2
    data_width: int = 64
    clock_ps: int = 16_000
    mtu: int = 1024
    qps: int = 8
    mpr_psns: int = 128
    evs_per_plane: int = 32
    ev_profiles: int = 8
    send_queue_depth: int = 8
    receive_queue_depth: int = 16
    memory_regions: int = 16
    completion_queues: int = 4
    immediates: int = 32
    receive_buffer_bytes: int = 4096
    transmit_slots: int = 4
    placements: int = 8
    address_width: int = 32
    congestion_control: bool = False
    loss_inference: bool = False
    go_back_n: bool = False
    trace: bool = False

    def __post_init__(self) -> None:
        self._range("planes", 1, 8)
        self._one_of("data_width", (64, 128, 256, 512))
        self._range("clock_ps", 1_000, TICK_PS)
        if TICK_PS % self.clock_ps:
            raise ConfigurationError(f"clock_ps must divide {TICK_PS} ps, got {self.clock_ps}")
        self._one_of("mtu", (256, 512, 1024, 2048, 4096))
        self._power("qps", 2, 256)
        self._power("mpr_psns", 128, 4096)
        self._range("evs_per_plane", 1, 32)
        self._power("ev_profiles", 1, 256)
        self._power("send_queue_depth", 2, 1024)
        self._power("receive_queue_depth", 2, 1024)
        self._power("memory_regions", 2, 1024)
        self._power("completion_queues", 2, 64)
        self._power("immediates", 32, 1024)
        self._power("receive_buffer_bytes", 2 * self.mtu, 1 << 20)
        self._power("transmit_slots", 2, 16)
        self._power("placements", 2, 16)
        self._range("address_width", 32, 64)

    def _range(self, name: str, low: int, high: int) -> None:
        value = getattr(self, name)
        if not low <= value <= high:
            raise ConfigurationError(f"{name} must be between {low} and {high}, got {value}")

    def _one_of(self, name: str, allowed: tuple[int, ...]) -> None:
        value = getattr(self, name)
        if value not in allowed:
            raise ConfigurationError(f"{name} must be one of {', '.join(map(str, allowed))}, got {value}")

    def _power(self, name: str, low: int, high: int) -> None:
        self._range(name, low, high)
        value = getattr(self, name)
        if not _power_of_two(value):
            raise ConfigurationError(f"{name} must be a power of two, got {value}")

    # Derived sizes -----------------------------------------------------------------------------------

    @property
    def data_bytes(self) -> int:
        """Bytes of one beat of the core data path."""
        return self.data_width // 8

    @property
    def cycles_per_tick(self) -> int:
        """Core clock cycles in one 128 ns tick."""
        return TICK_PS // self.clock_ps

    @property
    def qp_bits(self) -> int:
        """Bits of a QP index."""
        return (self.qps - 1).bit_length()

    @property
    def psn_ring_bits(self) -> int:
        """Bits of a PSN that index the tracker rings."""
        return (self.mpr_psns - 1).bit_length()

    @property
    def evs(self) -> int:
        """Entropy values of a QP over all planes."""
        return self.planes * self.evs_per_plane

    @property
    def context_word_bits(self) -> int:
        """Width of the memories that hold wider contexts serially: the core data width."""
        return self.data_width

    @property
    def packet_interval(self) -> int:
        """K of the profile, section 10: most cycles between packets shorter than K beats."""
        return {64: 16, 128: 8, 256: 4, 512: 4}[self.data_width]

    def as_dict(self) -> dict[str, int | bool]:
        """Every parameter by name, for manifests and cache keys."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def with_(self, **changes: int | bool) -> "NicConfig":
        """A copy with some parameters changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    # Named configurations ----------------------------------------------------------------------------

    @classmethod
    def small(cls) -> "NicConfig":
        """The boards' configuration: 2 planes, 64 bit at 62.5 MHz, MTU 1024, 8 QPs."""
        return cls()

    @classmethod
    def default(cls) -> "NicConfig":
        """4 planes, 128 bit at 250 MHz, 16 QPs, MPR 1024, 128 EVs a QP."""
        return cls(
            planes=4, data_width=128, clock_ps=4_000, mtu=4096, qps=16, mpr_psns=1024, evs_per_plane=32,
            ev_profiles=16, send_queue_depth=64, receive_queue_depth=64, memory_regions=32,
            completion_queues=8, receive_buffer_bytes=16_384, transmit_slots=4, address_width=64,
            congestion_control=True, loss_inference=True, go_back_n=True,
        )  # fmt: skip

    @classmethod
    def large(cls) -> "NicConfig":
        """8 planes, 512 bit, 256 QPs, MPR 1024, 256 EVs a QP; simulation and lint only."""
        return cls(
            planes=8, data_width=512, clock_ps=4_000, mtu=4096, qps=256, mpr_psns=1024, evs_per_plane=32,
            ev_profiles=64, send_queue_depth=64, receive_queue_depth=64, memory_regions=256,
            completion_queues=16, receive_buffer_bytes=16_384, transmit_slots=8, placements=16,
            address_width=64, congestion_control=True, loss_inference=True, go_back_n=True,
        )  # fmt: skip

    @classmethod
    def quickstart(cls) -> "NicConfig":
        """The first experiment's core: 4 planes, 128 bit at 250 MHz, MTU 4096, 32 EVs a QP, MPR 128."""
        return cls(
            planes=4, data_width=128, clock_ps=4_000, mtu=4096, qps=4, mpr_psns=128, evs_per_plane=8,
            ev_profiles=4, send_queue_depth=64, receive_queue_depth=64, memory_regions=8,
            completion_queues=4, receive_buffer_bytes=16_384, transmit_slots=4, address_width=32,
            congestion_control=True, loss_inference=True, go_back_n=True,
        )  # fmt: skip

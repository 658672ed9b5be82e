"""What the tests of the controller API share."""

from __future__ import annotations

import pytest
from register_nic import FULL, RegisterNic

from mrc_host.nic.device import (
    Context,
    Endpoint,
    EvField,
    EvFormatMode,
    EvMode,
    Identity,
    ProfileState,
    VerbsError,
)
from mrc_rtl import wire

OWN, PEER = wire.inner_address(1), wire.inner_address(2)
IDENTITY = Identity(OWN, 0x0801, (0x020000000001, 0x020000010001), (0x0201, 0x0202))
PEER_END = Endpoint(qp_number=0x123, starting_psn=0xFFFFF0, address=PEER, mpr=1, max_wimm=64)
#: Fields of 8 + 4 + 4 bits: which T0, which of its links (0 to 11), which T1 link.
STEV_WIDTHS = (8, 4, 4)
STEV_FIELDS = (EvField(8, mask=0xFF, max_val=179), EvField(4, mask=0xF, max_val=11), EvField(4, mask=0xF))
#: A locator of 32 bits and four uSIDs, of which the second takes EV bits.
SRV6_WIDTHS = (32, 16, 16, 16, 16)
SRV6_FIELDS = (
    EvField(32, 0x5F000000), EvField(16, 0x0001), EvField(16, 0x0400, mask=0x3, max_val=2),
    EvField(16, 0x0002), EvField(16, 0x0801),
)  # fmt: skip


def make_context(flags=FULL, **options):
    """An open device."""
    return Context(RegisterNic(flags, **options), IDENTITY)


def check_refused(name, attribute, rule=""):
    """Expect a VerbsError; attribute and rule are patterns."""
    return pytest.raises(VerbsError, match=f"^{name}: {attribute} must be {rule}")


def stev_format(context):
    """An EV format that is ONLINE."""
    form = context.ev_format()
    form.modify(ProfileState.OFFLINE, mode=EvFormatMode.STEV)
    form.modify(ProfileState.ONLINE, fields=STEV_WIDTHS)
    return form


def srv6_format(context, widths=SRV6_WIDTHS):
    """An EV format of mode SRV6 that is ONLINE."""
    form = context.ev_format()
    form.modify(ProfileState.OFFLINE, mode=EvFormatMode.SRV6)
    form.modify(ProfileState.ONLINE, fields=widths)
    return form


def explicit_profile(context, count=4, form=None, fields=STEV_FIELDS):
    """An EXPLICIT profile that is OFFLINE, without values."""
    profile = context.create_ev_profile()
    profile.modify(
        ProfileState.OFFLINE, mode=EvMode.EXPLICIT, format=form or stev_format(context), ev_count=count,
        fields=fields,
    )  # fmt: skip
    return profile

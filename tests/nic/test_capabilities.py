"""What a device says it can do, and the refusal of everything else.

Sweep: a device without the controller's tables, one that can do everything, one without each capability.
Stimulus: the row DEVICE; calls that need a capability.
Checks: capabilities by the names of the API; EOPNOTSUPP with the capability's name.
Timing: none.
"""

import pytest
from control import (
    IDENTITY,
    PEER_END,
    SRV6_FIELDS,
    STEV_WIDTHS,
    check_refused,
    explicit_profile,
    make_context,
    srv6_format,
    stev_format,
)
from register_nic import CONFIG, FULL, RegisterNic

from mrc_host.nic.capabilities import DRIVER_CC_PROFILES
from mrc_host.nic.device import (
    Context,
    DeviceFlag,
    EndpointOperation,
    EndpointRequest,
    EvField,
    EvFormatMode,
    EvKey,
    EvMode,
    EvReplacement,
    Path,
    ProfileState,
    QpState,
)
from mrc_rtl.tables import GATEWARE_FLAGS, ControlTableId

PATH = Path(IDENTITY.address, PEER_END.address)


def test_a_device_without_the_tables_is_what_the_gateware_is():
    capabilities = make_context(None).capabilities
    assert capabilities.flags == GATEWARE_FLAGS and not capabilities.controlled
    assert (capabilities.trim_nack, capabilities.dynamic_mpr, capabilities.svc_time) == (True, False, True)
    assert (capabilities.cc_algorithms, capabilities.cc_profiles) == (("uet-1.0-nscc",), DRIVER_CC_PROFILES)
    assert capabilities.endpoint_slots == 0
    assert capabilities.mpr_resolution == capabilities.mpr == 1


def test_a_row_of_zeros_is_no_device():
    assert not make_context(DeviceFlag(0), align=0).capabilities.controlled


def test_capabilities_by_the_names_of_the_api():
    nic = RegisterNic(config=CONFIG.with_(mpr_psns=1024))
    capabilities = Context(nic, IDENTITY).capabilities
    assert capabilities.controlled and capabilities.flags == FULL
    assert capabilities.protocol_versions == 1 and capabilities.api_version == 0x0100_0001
    assert (capabilities.mpr, capabilities.mpr_resolution, capabilities.max_wimm) == (8, 1, 32)
    assert capabilities.trim_nack and capabilities.dynamic_mpr and capabilities.svc_time
    assert capabilities.phy_port_mask == 0b110
    assert (capabilities.ev_max_count_profile, capabilities.ev_count_align) == (16, 2)
    assert (capabilities.ev_op_max_entries, capabilities.fmt_max_fields) == (64, 16)
    assert (capabilities.cc_algorithms, capabilities.cc_profiles) == (("uet-1.0-nscc",), 2)
    assert capabilities.endpoint_slots == 4


def new_format(mode, widths):
    def call(context):
        form = context.ev_format()
        form.modify(ProfileState.OFFLINE, mode=mode)
        form.modify(ProfileState.ONLINE, fields=widths)

    return call


def generated(context):
    profile = context.create_ev_profile()
    fields = (EvField(8, mask=0xFF),)
    profile.modify(
        ProfileState.OFFLINE, mode=EvMode.GENERATED, format=stev_format(context), ev_count=4, fields=fields
    )


def online_edit(context):
    profile = explicit_profile(context, 2)
    pairs = [(EvKey(0, 0), EvKey(0x1234 + port, port)) for port in (1, 2)]
    profile.replace_ev([EvReplacement(*pair) for pair in pairs])
    profile.modify(ProfileState.ONLINE, ev_min_active=0, ev_event_mask=0)
    profile.modify(ev_event_mask=1)


def dynamic(context):
    pair = context.queue_pair(context.protection_domain(), context.completion_queue(16))
    pair.to_init(context.ev_profile([[1], [2]]))
    pair.modify(QpState.RTR, path=PATH, path_mtu=256, dest_qp_num=5, rq_psn=0, mpr_dest=1, dynamic_mpr=True)


def going_back(context):
    pair = context.queue_pair(context.protection_domain(), context.completion_queue(16))
    pair.to_init(context.ev_profile([[1], [2]]), go_back_n=True)


def update(context):
    request = EndpointRequest(
        path=PATH, port=1, value=1, operation=EndpointOperation.PORT_STATUS_UPDATE, port_mask=1
    )
    context.endpoint_operations.post([request])


@pytest.mark.parametrize(
    ("flag", "attribute", "call"),
    [
        (DeviceFlag.CC_NSCC, "cc_profile", lambda context: context.cc_profile()),
        (DeviceFlag.DYNAMIC_MPR, "qp.dynamic_mpr", dynamic),
        (DeviceFlag.GO_BACK_N, "qp.go_back_n", going_back),
        (DeviceFlag.EV_EXPLICIT, "ev_profile.mode", explicit_profile),
        (DeviceFlag.EV_GENERATED, "ev_profile.mode", generated),
        (DeviceFlag.EV_STATES, "ev_profile.operation", lambda c: c.ev_profile([[1], [2]]).query_ev_array()),
        (DeviceFlag.EV_STATES, "ev_profile.backups", lambda c: c.ev_profile([[1, 3], [2, 4]], backups=1)),
        (DeviceFlag.EV_STATES, "ev_profile.ev_min_active",
         lambda c: c.ev_profile([[1], [2]], ev_min_active=1)),
        (DeviceFlag.EV_EVENTS, "ev_events", lambda context: context.poll_ev_events()),
        (DeviceFlag.EV_EVENTS, "ev_profile.ev_event_mask",
         lambda c: c.ev_profile([[1], [2]], ev_event_mask=2)),
        (DeviceFlag.EV_PROFILE_MODIFY_ONLINE, "ev_profile.ev_event_mask while ONLINE", online_edit),
        (DeviceFlag.FORMAT_STEV, "ev_format.mode", new_format(EvFormatMode.STEV, STEV_WIDTHS)),
        (DeviceFlag.FORMAT_UDP, "ev_format.mode", new_format(EvFormatMode.UDP, (16,))),
        (DeviceFlag.FORMAT_SRV6, "ev_format.mode", new_format(EvFormatMode.SRV6, (32, 16))),
        (DeviceFlag.FORMAT_SRV6_SRH, "ev_format.fields.sum", new_format(EvFormatMode.SRV6, (32,) * 5)),
        (DeviceFlag.EV_DESTINATIONS, "ev_profile.format",
         lambda c: explicit_profile(c, form=srv6_format(c), fields=SRV6_FIELDS)),
        (DeviceFlag.EP_EV_PROBE, "endpoint_operations", lambda context: context.endpoint_operations),
        (DeviceFlag.EP_PORT_STATUS_UPDATE, r"endpoint.requests\[0\].operation", update),
    ],
)  # fmt: skip
def test_what_a_device_cannot_do_is_refused_by_name(flag, attribute, call):
    call(make_context())
    with check_refused("EOPNOTSUPP", attribute, f"left out on a device without capability {flag.name}, got"):
        call(make_context(FULL & ~flag))


def test_the_gateware_refuses_all_of_it():
    context = make_context(None)
    for call in (
        lambda: context.endpoint_operations,
        lambda: explicit_profile(context, form=srv6_format(context), fields=SRV6_FIELDS),
    ):
        with check_refused("EOPNOTSUPP", ".*", "left out on a device without capability [A-Z_]+"):
            call()
    context.ev_profile([[1, 2], [3]])
    assert not any(table in set(ControlTableId) for table, _ in context.nic.written)

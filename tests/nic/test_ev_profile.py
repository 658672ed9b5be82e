"""EV formats and EV profiles: life cycle, constraints, modes, and the rows they make.

Sweep: every step and missing attribute; every constraint of protocol.md 2.8; AUTO, EXPLICIT, GENERATED in
    STEV, UDP, SRv6, SRv6 with a routing header; fields per port; profiles given back.
Stimulus: calls of the API on a device of tables.
Checks: rows of EV_PROFILE, EV_ENTRY, EV_SET; errno, attribute and rule; nothing changed after a refusal.
Timing: none.
"""

import pytest
from control import (
    SRV6_FIELDS,
    STEV_FIELDS,
    STEV_WIDTHS,
    check_refused,
    explicit_profile,
    make_context,
    srv6_format,
    stev_format,
)
from register_nic import FULL

from mrc_host.nic.device import (
    UNPOPULATED,
    DeviceFlag,
    EvEventMask,
    EvField,
    EvFormatMode,
    EvKey,
    EvMode,
    EvReplacement,
    EvState,
    ProfileState,
)
from mrc_rtl import wire
from mrc_rtl.tables import ControlTableId, TableId

INIT, OFFLINE, ONLINE = ProfileState


@pytest.fixture
def context():
    return make_context()


def generated(context, form, fields, count=8, **more):
    profile = context.create_ev_profile()
    profile.modify(OFFLINE, mode=EvMode.GENERATED, format=form, ev_count=count, fields=fields, **more)
    profile.modify(ONLINE, ev_min_active=2, ev_event_mask=EvEventMask.GOOD)
    return profile


def entry(context, profile, plane, place):
    index = (profile.number * 2 + plane) * 32 + place
    return context.nic.row(ControlTableId.EV_ENTRY, index)


# -- formats ---------------------------------------------------------------------------------------------


def test_life_cycle_of_a_format(context):
    form = context.ev_format()
    assert form.state is INIT
    with check_refused("EINVAL", "ev_format.state", "OFFLINE after INIT, got ONLINE"):
        form.modify(ONLINE, mode=EvFormatMode.UDP, fields=(16,))
    with check_refused("EINVAL", "ev_format.mode", "given to go OFFLINE"):
        form.modify(OFFLINE)
    with check_refused("EINVAL", "ev_format.state", "of type ProfileState"):
        form.modify(1, mode=EvFormatMode.UDP)
    form.modify(mode=EvFormatMode.UDP)
    form.modify(OFFLINE)
    with check_refused("EINVAL", "ev_format.state", "ONLINE or INIT after OFFLINE, got OFFLINE"):
        form.modify(OFFLINE)
    with check_refused("EINVAL", "ev_format.fields", "given to go ONLINE"):
        form.modify(ONLINE)
    form.modify(ONLINE, fields=[8, 8])
    assert form.widths == (8, 8) and form.mode is EvFormatMode.UDP
    with check_refused("EINVAL", "ev_format.fields", "changed while OFFLINE only"):
        form.modify(fields=[4])
    form.modify(OFFLINE)
    form.modify(fields=[4])
    form.modify(INIT)
    assert form.attributes == {}
    form.destroy()
    with check_refused("EINVAL", "ev_format", "one that exists"):
        form.modify(mode=EvFormatMode.UDP)


@pytest.mark.parametrize(
    ("values", "attribute", "rule"),
    [
        ({"mode": 0}, "mode", "of type EvFormatMode"),
        ({"mode": EvFormatMode.STEV, "fields": 3}, "fields", "a sequence of widths"),
        ({"mode": EvFormatMode.STEV, "fields": ()}, "field_count", "between 1 and 16"),
        ({"mode": EvFormatMode.STEV, "fields": (1,) * 17}, "field_count", "between 1 and 16"),
        ({"mode": EvFormatMode.STEV, "fields": (0,)}, r"fields\[0\]", "between 1 and 128"),
        ({"mode": EvFormatMode.STEV, "fields": (8, "8")}, r"fields\[1\]", "between 1 and 128"),
        ({"mode": EvFormatMode.STEV, "fields": (16, 17)}, "fields.sum", "between 1 and 32"),
        ({"mode": EvFormatMode.UDP, "fields": (17,)}, "fields.sum", "between 1 and 16"),
        ({"mode": EvFormatMode.SRV6, "fields": (128, 128, 1)}, "fields.sum", "between 1 and 256"),
        ({"colour": 1}, "attribute", "one of mode, fields"),
    ],
)
def test_formats_out_of_range(context, values, attribute, rule):
    form = context.ev_format()
    with check_refused("EINVAL", f"ev_format.{attribute}", rule):
        form.modify(OFFLINE, **values)
    assert form.state is INIT and form.attributes == {}


def test_a_format_in_use_stays(context):
    form = stev_format(context)
    profile = explicit_profile(context, form=form)
    for call in (lambda: form.modify(OFFLINE), form.destroy):
        with check_refused("EBUSY", "ev_format.users", "0, got 1"):
            call()
    profile.modify(INIT)
    form.modify(OFFLINE)
    assert form.state is OFFLINE


# -- life cycle of profiles ------------------------------------------------------------------------------


def test_life_cycle_of_a_profile(context):
    profile = context.create_ev_profile()
    form = stev_format(context)
    complete = {"mode": EvMode.EXPLICIT, "format": form, "ev_count": 4, "fields": STEV_FIELDS}
    for name in complete:
        rest = {key: value for key, value in complete.items() if key != name}
        with check_refused("EINVAL", f"ev_profile.{name}", "given (to go OFFLINE|in mode EXPLICIT)"):
            profile.modify(OFFLINE, **rest)
        assert profile.state is INIT and profile.attributes == profile.defaults
    profile.modify(OFFLINE, **complete)
    assert [item.key for item in profile.array.entries] == [UNPOPULATED] * 4
    assert context.nic.row(ControlTableId.EV_PROFILE)["state"] == OFFLINE
    for name, rest in (("ev_min_active", {"ev_event_mask": 0}), ("ev_event_mask", {"ev_min_active": 1})):
        with check_refused("EINVAL", f"ev_profile.{name}", "given to go ONLINE"):
            profile.modify(ONLINE, **rest)
    profile.modify(ev_min_active=1, ev_event_mask=EvEventMask.ASSUMED_BAD)
    with check_refused("EINVAL", "ev_profile.unpopulated", r"0 to go ONLINE \(REPLACE_EV\), got 4"):
        profile.modify(ONLINE)
    profile.replace_ev([EvReplacement(UNPOPULATED, EvKey(0x1200 + n, n % 2 + 1)) for n in range(4)])
    profile.modify(ONLINE)
    assert context.nic.row(ControlTableId.EV_PROFILE) == {
        "state": ONLINE, "expanded": 0, "segment": 0, "events": EvState.ASSUMED_BAD, "min_active": 1,
        "oblivious": 0,
    }  # fmt: skip
    with check_refused("EINVAL", "ev_profile.ev_count", "changed while OFFLINE only"):
        profile.modify(ev_count=6)
    profile.modify(ev_event_mask=0)
    assert context.nic.row(ControlTableId.EV_PROFILE)["events"] == 0
    pair = context.queue_pair(context.protection_domain(), context.completion_queue(16))
    pair.to_init(profile)
    for call in (lambda: profile.modify(OFFLINE), profile.destroy):
        with check_refused("EBUSY", "ev_profile.users", "0, got 1"):
            call()
    pair.reset()
    profile.modify(OFFLINE)
    assert entry(context, profile, 0, 0)["state"] == EvState.UNPOPULATED
    profile.modify(ONLINE)
    profile.destroy()
    assert context.nic.row(ControlTableId.EV_PROFILE)["state"] == INIT
    with check_refused("EINVAL", "ev_profile", "one that exists"):
        profile.query_ev_array()
    assert context.create_ev_profile().number == 0


def test_profiles_run_out(context):
    profiles = [context.create_ev_profile() for _ in range(4)]
    with check_refused("ENOMEM", "device.ev_profiles", "at most 4 at a time"):
        context.create_ev_profile()
    profiles[2].destroy()
    assert context.create_ev_profile().number == 2


def test_another_devices_objects(context):
    other = make_context()
    with check_refused("EINVAL", "ev_profile.format", "of this device"):
        explicit_profile(context, form=stev_format(other))
    pair = context.queue_pair(context.protection_domain(), context.completion_queue(16))
    with check_refused("EINVAL", "qp.ev_profile", "of this device"):
        pair.to_init(other.ev_profile([[1], [2]]))
    with check_refused("EINVAL", "qp.ev_profile.state", "ONLINE, got INIT"):
        pair.to_init(context.create_ev_profile())


# -- constraints -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "attribute", "rule"),
    [
        ({"mode": 2}, "mode", "of type EvMode"),
        ({"format": 1}, "format", "of type EvFormat"),
        ({"ev_count": 0}, "ev_count", "between 1 and 16"),
        ({"ev_count": 18}, "ev_count", "between 1 and 16"),
        ({"ev_count": 5}, "ev_count", "a multiple of 2"),
        ({"ev_min_active": 17}, "ev_min_active", "between 0 and 16"),
        ({"ev_event_mask": 4}, "ev_event_mask", "between 0 and 3"),
        ({"backups": -1}, "backups", "between 0 and 31"),
        ({"uplinks": 0}, "uplinks", "between 1 and 255"),
        ({"fields": 8}, "fields", "a sequence of EvField"),
        ({"fields": (8, 4)}, "fields", "a sequence of EvField"),
        ({"fields": {1: STEV_FIELDS}}, "fields.ports", "1 to 2, each once"),
        ({"fields": (*STEV_FIELDS, EvField(1))}, "fields", "at most as many as the 3 format fields"),
        ({"fields": (EvField(9),)}, r"fields\[0\].width", "between 1 and the format field's 8 bits"),
        ({"fields": (EvField(4, 0x10),)}, r"fields\[0\].init_val", "within 4 bits"),
        ({"fields": (EvField(8), EvField(4, mask=0x1F))}, r"fields\[1\].mask", "within 4 bits"),
        ({"fields": (EvField(8, mask=3, max_val=4),)}, r"fields\[0\].max_val", "within the 2 bits set"),
        ({"fields": (EvField(8, max_val=1),)}, r"fields\[0\].max_val", "within the 0 bits set"),
        (
            {"fields": (EvField(8, mask=7, min_val=5, max_val=4),)},
            r"fields\[0\].min_val",
            "between 0 and max",
        ),
        ({"fields": {1: STEV_FIELDS, 2: (EvField(9),)}}, r"fields\[port 2\]\[0\].width", "between 1 and"),
        ({"speed": 1}, "attribute", "one of mode, format, ev_count"),
    ],
)
def test_profiles_out_of_range(context, changes, attribute, rule):
    profile = context.create_ev_profile()
    complete = {
        "mode": EvMode.EXPLICIT, "format": stev_format(context), "ev_count": 4, "fields": STEV_FIELDS,
    }  # fmt: skip
    with check_refused("EINVAL", f"ev_profile.{attribute}", rule):
        profile.modify(OFFLINE, **{**complete, **changes})
    assert profile.state is INIT and profile.array.entries == []


def test_what_an_array_must_be_to_go_online(context):
    profile = context.create_ev_profile()
    profile.modify(OFFLINE, mode=EvMode.AUTO, ev_count=4)
    with check_refused("EINVAL", "ev_profile.ev_min_active", "between 0 and 4, got 5"):
        profile.modify(ONLINE, ev_min_active=5, ev_event_mask=0)
    with check_refused("EINVAL", "ev_profile.backups", "below the 2 entries of port 1, got 2"):
        profile.modify(ONLINE, ev_min_active=4, ev_event_mask=0, backups=2)
    with check_refused("EINVAL", "ev_profile.fields", "left out in mode AUTO"):
        profile.modify(fields=STEV_FIELDS)
    offline = context.ev_format()
    with check_refused("EINVAL", "ev_profile.format.state", "ONLINE, got INIT"):
        profile.modify(format=offline)
    profile.modify(ONLINE, ev_min_active=4, ev_event_mask=0, backups=1)
    assert [profile.ev_words(plane) for plane in range(2)] == [{"good": 1, "skip": 2}] * 2


def test_a_device_that_takes_contiguous_ranges_only():
    context = make_context(FULL | DeviceFlag.EV_EXPLICIT_RANGE)
    profile = explicit_profile(context)
    keys = [EvKey(0x10, 1), EvKey(0x12, 1), EvKey(0x20, 2), EvKey(0x21, 2)]
    profile.replace_ev([EvReplacement(UNPOPULATED, key) for key in keys])
    with check_refused("EINVAL", "ev_profile.values", "one contiguous range a port"):
        profile.modify(ONLINE, ev_min_active=0, ev_event_mask=0)
    profile.replace_ev([EvReplacement(keys[1], EvKey(0x11, 1))])
    profile.modify(ONLINE, ev_min_active=0, ev_event_mask=0)
    with check_refused("EINVAL", r"entries\[0\].ev_profile.values", "one contiguous range"):
        profile.replace_ev([EvReplacement(EvKey(0x11, 1), EvKey(0x13, 1))])


# -- modes and formats -----------------------------------------------------------------------------------


def test_auto_spreads_over_planes_and_uplinks(context):
    profile = context.create_ev_profile()
    profile.modify(OFFLINE, mode=EvMode.AUTO, ev_count=8, uplinks=3)
    profile.modify(ONLINE, ev_min_active=2, ev_event_mask=3)
    assert profile.planes == tuple(
        tuple(wire.ev_value(plane, n % 3 + 1, n // 3) for n in range(4)) for plane in range(2)
    )
    row = entry(context, profile, 1, 3)
    assert (row["value"], row["port"], row["state"]) == (wire.ev_value(1, 1, 1), 2, EvState.GOOD)
    assert context.nic.row(ControlTableId.EV_PROFILE)["expanded"] == 0


@pytest.mark.parametrize(("mode", "low"), [(EvFormatMode.STEV, 0xFFFF), (EvFormatMode.UDP, 0)])
def test_auto_draws_source_ports(context, mode, low):
    form = context.ev_format()
    form.modify(OFFLINE, mode=mode)
    form.modify(ONLINE, fields=(16,))
    profile = context.create_ev_profile()
    profile.modify(OFFLINE, mode=EvMode.AUTO, format=form, ev_count=16)
    profile.modify(ONLINE, ev_min_active=0, ev_event_mask=0)
    values = [value for plane in profile.planes for value in plane]
    assert len(values) == 16 and all(value >> 16 >= 0xC000 for value in values)
    assert all(len(set(plane)) == 8 for plane in profile.planes)
    assert all(value & 0xFFFF & ~low == 0 for value in values)


def test_stev_stands_left_aligned_on_the_wire(context):
    profile = generated(context, stev_format(context), STEV_FIELDS)
    for row in profile.planes:
        for value in row:
            assert value & 0xFFFF == 0
            assert value >> 24 <= 179 and value >> 20 & 0xF <= 11
    assert profile.planes[0] == profile.planes[1] and len(set(profile.planes[0])) == 4
    for field in (24, 20, 16):
        assert len({value >> field & 0xF for value in profile.planes[0]}) > 1


def test_few_combinations_come_again(context):
    fields = (EvField(8, mask=1), EvField(4), EvField(4, mask=1))
    profile = generated(context, stev_format(context), fields, count=16)
    assert sorted(profile.planes[0]) == sorted(2 * [a << 24 | b << 16 for a in range(2) for b in range(2)])


def test_udp_takes_the_upper_half(context):
    form = context.ev_format()
    form.modify(OFFLINE, mode=EvFormatMode.UDP)
    form.modify(ONLINE, fields=(16,))
    profile = explicit_profile(context, 2, form, (EvField(16, 0xC000, mask=0x3FFF),))
    profile.replace_ev([EvReplacement(UNPOPULATED, EvKey(5, port)) for port in (1, 2)])
    profile.modify(ONLINE, ev_min_active=0, ev_event_mask=0)
    assert profile.planes == ((0xC0050000,), (0xC0050000,))


def test_srv6_expands_to_the_destination(context):
    profile = explicit_profile(context, 4, srv6_format(context), SRV6_FIELDS)
    profile.replace_ev([EvReplacement(UNPOPULATED, EvKey(n // 2 + 1, n % 2 + 1)) for n in range(4)])
    profile.modify(ONLINE, ev_min_active=1, ev_event_mask=0)
    row = entry(context, profile, 1, 1)
    assert row["destination_high"] == 0x5F000000_0001_0402
    assert row["destination_low"] == 0x0002_0801_0000_0000
    assert row["segment_high"] == row["segment_low"] == 0
    assert row["value"] == 0xC1000001  # plane 1, no uplink, place 1
    profile_row = context.nic.row(ControlTableId.EV_PROFILE)
    assert (profile_row["expanded"], profile_row["segment"]) == (1, 0)


def test_srv6_with_a_segment(context):
    widths = (32, *(16,) * 6, 32, *(16,) * 4)
    form = srv6_format(context, widths)
    assert form.has_segment
    fields = (
        EvField(32, 0x5F000000), *(EvField(16, n) for n in range(1, 7)), EvField(32, 0x5F000001),
        EvField(16, 0x0700, mask=0xFF), *(EvField(16, 9) for _ in range(3)),
    )  # fmt: skip
    profile = explicit_profile(context, 2, form, fields)
    profile.replace_ev([EvReplacement(UNPOPULATED, EvKey(0x2A, port)) for port in (1, 2)])
    profile.modify(ONLINE, ev_min_active=0, ev_event_mask=0)
    row = entry(context, profile, 0, 0)
    assert row["destination_low"] == 0x0003_0004_0005_0006
    assert row["segment_high"] == 0x5F000001_072A_0009
    assert row["segment_low"] == 0x0009_0009_0000_0000
    assert context.nic.row(ControlTableId.EV_PROFILE)["segment"] == 1


def test_fields_of_each_port(context):
    fields = {1: (EvField(8, 0x10, mask=0xF),), 2: (EvField(8, 0x20, mask=0xF),)}
    profile = generated(context, stev_format(context), fields, count=4)
    assert {value >> 28 for value in profile.planes[0]} == {1}
    assert {value >> 28 for value in profile.planes[1]} == {2}


def test_fields_change_online(context):
    profile = explicit_profile(context, 2)
    profile.replace_ev([EvReplacement(UNPOPULATED, EvKey(0x1234, port)) for port in (1, 2)])
    profile.modify(ONLINE, ev_min_active=0, ev_event_mask=0)
    assert profile.planes == ((0x12340000,), (0x12340000,))
    with check_refused("EINVAL", r"ev.fields\[0\]", "between 0 and 16"):
        profile.modify(fields=(EvField(8, mask=0xFF, max_val=16), *STEV_FIELDS[1:]))
    with check_refused("EINVAL", "ev.value", "within the 8 bits"):
        profile.modify(fields=STEV_FIELDS[:1])
    assert profile.planes == ((0x12340000,), (0x12340000,))
    profile.modify(fields=(EvField(8, mask=0xFF), EvField(4, 0, mask=0xF), EvField(4, 0, mask=0xF)))
    assert entry(context, profile, 0, 0)["value"] == 0x12340000
    assert STEV_WIDTHS == profile.format.widths


# -- profiles of the driver's own values -----------------------------------------------------------------


def test_given_values_with_the_devices_defaults(context):
    profile = context.ev_profile([[0xC0010000 + n for n in range(8)], [0xC1010000]])
    assert context.nic.row(ControlTableId.EV_PROFILE) == {
        "state": ONLINE, "expanded": 0, "segment": 0, "events": 3, "min_active": 2,
        "oblivious": 0,
    }  # fmt: skip
    assert entry(context, profile, 1, 0)["value"] == 0xC1010000
    assert profile.state is ONLINE and profile.mode is EvMode.AUTO
    with check_refused("EINVAL", "ev_profile.backups", "below the 1 entries of port 1"):
        context.ev_profile([[1], [2]], backups=1)
    assert context.create_ev_profile().number == 1


def test_the_gateware_has_the_values_only():
    context = make_context(None)
    profile = context.ev_profile([[7, 8], [9]])
    assert context.nic.row(TableId.EV_VALUE, 1) == {"value": 8, "port": 1}
    assert [profile.ev_words(plane) for plane in range(2)] == [{"good": 3, "skip": 0}, {"good": 1, "skip": 0}]
    profile.destroy()

"""What two ends tell each other as JSON.

Sweep: round trips of all that fits; every key missing, unknown, of the wrong type or out of range.
Stimulus: endpoints made by queue pairs and at random; edited documents.
Checks: equality; errno, attribute and rule.
Timing: none.
"""

import json

import pytest
from control import OWN, PEER_END, check_refused, make_context
from hypothesis import given
from hypothesis import strategies as st

from mrc_host.nic.device import Access, Endpoint, Path, RemoteRegion

REGION = RemoteRegion(0x7F0000001000, 8192, 0x101, "weights")
ENDPOINT = Endpoint(0x100, 5, OWN, 8, 64, dynamic_mpr=True, regions=(REGION,))


def test_what_a_queue_pair_says():
    context = make_context()
    domain = context.protection_domain()
    region = domain.register(context.allocator.allocate(8192), Access.LOCAL_WRITE | Access.REMOTE_WRITE)
    pair = context.queue_pair(domain, context.completion_queue(16))
    endpoint = pair.endpoint(7, [region.remote("weights")])
    assert endpoint == Endpoint(
        0x100, 7, OWN, 1, 32, dynamic_mpr=True, trim_nack=True, svc_time=True,
        regions=(RemoteRegion(region.address, 8192, region.rkey, "weights"),),
        probe_answers=True, endpoint_answers=True,
    )  # fmt: skip
    assert endpoint.region("weights").rkey == region.rkey
    with check_refused("ENOENT", "endpoint.regions.name", "one the other end told of, got biases"):
        endpoint.region("biases")
    assert Endpoint.from_json(endpoint.to_json()) == endpoint


def test_the_text():
    assert json.loads(ENDPOINT.to_json()) == {
        "format": "mrc-endpoint", "version": 2, "qp_number": 256, "starting_psn": 5,
        "address": "fd00:0:0:1::1", "mpr": 8, "max_wimm": 64, "dynamic_mpr": True,
        "trim_nack": True, "svc_time": False, "protocol_version": 1,
        "probe_answers": True, "endpoint_answers": True,
        "regions": [{"name": "weights", "address": "0x7f0000001000", "length": 8192, "rkey": "0x101"}],
    }  # fmt: skip


regions = st.builds(
    RemoteRegion,
    st.integers(0, (1 << 63) - 1),
    st.integers(1, 1 << 63),
    st.integers(0, (1 << 32) - 1),
    st.text(),
)


@given(
    st.builds(
        Endpoint, st.integers(3, (1 << 24) - 1), st.integers(0, (1 << 24) - 1),
        st.integers(0, (1 << 128) - 1),
        st.integers(1, 255), st.integers(1, 0xFFFF), st.booleans(), st.booleans(), st.booleans(),
        st.lists(regions, max_size=3).map(tuple),
        probe_answers=st.booleans(), endpoint_answers=st.booleans(),
    )
)  # fmt: skip
def test_round_trip(endpoint):
    assert Endpoint.from_json(endpoint.to_json()) == endpoint


@pytest.mark.parametrize("name", [*json.loads(ENDPOINT.to_json())])
def test_missing_keys(name):
    document = json.loads(ENDPOINT.to_json())
    del document[name]
    with check_refused("EINVAL", f"endpoint.{name}"):
        Endpoint.from_json(json.dumps(document))


@pytest.mark.parametrize(
    ("changes", "name", "attribute", "rule"),
    [
        ({"format": "json"}, "EINVAL", "format", "mrc-endpoint"),
        ({"version": 1}, "EINVAL", "version", "2, got 1"),
        ({"version": True}, "EINVAL", "version", "2, got True"),
        ({"colour": 1}, "EINVAL", "key", "one of qp_number, starting_psn"),
        ({"qp_number": 2}, "EINVAL", "qp_number", "between 3 and"),
        ({"starting_psn": 1 << 24}, "EINVAL", "starting_psn", "between 0 and"),
        ({"address": 7}, "EINVAL", "address", "an IPv6 address"),
        ({"address": "10.0.0.1"}, "EINVAL", "address", "an IPv6 address"),
        ({"mpr": 0}, "EINVAL", "mpr", "between 1 and 255"),
        ({"mpr": "8"}, "EINVAL", "mpr", "between 1 and 255"),
        ({"max_wimm": 1 << 16}, "EINVAL", "max_wimm", "between 1 and"),
        ({"dynamic_mpr": 1}, "EINVAL", "dynamic_mpr", "true or false"),
        ({"trim_nack": None}, "EINVAL", "trim_nack", "true or false"),
        ({"svc_time": "no"}, "EINVAL", "svc_time", "true or false"),
        ({"probe_answers": 1}, "EINVAL", "probe_answers", "true or false"),
        ({"endpoint_answers": "yes"}, "EINVAL", "endpoint_answers", "true or false"),
        ({"protocol_version": 0}, "EINVAL", "protocol_version", "between 1 and"),
        ({"protocol_version": 2}, "EOPNOTSUPP", "protocol_version", "a mask with version 1"),
        ({"regions": {}}, "EINVAL", "regions", "a list"),
        ({"regions": [7]}, "EINVAL", r"regions\[0\]", "an object"),
    ],
)
def test_documents_out_of_range(changes, name, attribute, rule):
    document = {**json.loads(ENDPOINT.to_json()), **changes}
    with check_refused(name, f"endpoint.{attribute}", rule):
        Endpoint.from_json(json.dumps(document))


@pytest.mark.parametrize(
    ("changes", "attribute", "rule"),
    [
        ({"name": 1}, "name", "text"),
        ({"address": "7f"}, "address", "hexadecimal text"),
        ({"address": "0xzz"}, "address", "hexadecimal text"),
        ({"address": "0x10000000000000000"}, "address", "between 0 and"),
        ({"address": "0xffffffffffffffff", "length": 2}, "length", "between 1 and 1"),
        ({"rkey": "0x100000000"}, "rkey", "between 0 and"),
        ({"extra": 1}, "key", "one of name, address, length, rkey"),
    ],
)
def test_regions_out_of_range(changes, attribute, rule):
    document = json.loads(ENDPOINT.to_json())
    document["regions"][0].update(changes)
    with check_refused("EINVAL", rf"endpoint.regions\[0\].{attribute}", rule):
        Endpoint.from_json(json.dumps(document))


@pytest.mark.parametrize(
    ("text", "rule"), [("{", "JSON"), ("[]", "a JSON object"), (None, "JSON"), ("7", "a JSON")]
)
def test_other_texts(text, rule):
    with check_refused("EINVAL", "endpoint", rule):
        Endpoint.from_json(text)


def test_dynamic_mpr_needs_both():
    context = make_context()
    pair = context.queue_pair(context.protection_domain(), context.completion_queue(16))
    pair.to_init(context.ev_profile([[1], [2]]))
    with check_refused("EINVAL", "qp.dynamic_mpr", "False unless the peer wants it too"):
        pair.to_rtr(Path(1, 2), PEER_END, path_mtu=256, dynamic_mpr=True)
    pair.to_rtr(Path(1, 2), ENDPOINT, path_mtu=256, dynamic_mpr=True)
    assert pair.attributes["dynamic_mpr"]

"""The register map as plain objects, and the page made from it.

Sweep: every register and field. Stimulus: packing and unpacking, wrong names, values and indices.
Checks: no two words share an address, capabilities are the parameters of NicConfig, settings are the fields
of the gateware's settings, docs/registers.md is current. Timing: none.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from mrc_rtl import records
from mrc_rtl.config import NicConfig
from mrc_rtl.registers import (
    DOCUMENT,
    RegisterKind,
    config_hash,
    constant_value,
    main,
    markdown,
    register_map,
)

ROOT = Path(__file__).parents[2]
MAP = register_map()


def test_no_two_words_share_an_address():
    seen: dict[int, str] = {}
    for register in MAP:
        for index in range(register.count):
            for word in range(register.words):
                address = register.address(index, word)
                assert address % 4 == 0
                assert seen.setdefault(address, register.name) == register.name
    assert len(seen) == sum(register.count * register.words for register in MAP)


def test_fields_do_not_overlap():
    for register in MAP:
        used = 0
        for field in register.fields:
            bits = field.mask << field.low
            assert used & bits == 0, (register.name, field.name)
            assert field.text or register.name.startswith("capability_"), (register.name, field.name)
            used |= bits
        assert used < 1 << register.width
        assert register.text


def test_capabilities_are_the_parameters():
    names = [r.name.removeprefix("capability_") for r in MAP if r.name.startswith("capability_")]
    assert names == list(NicConfig().as_dict())
    config = NicConfig.large()
    assert constant_value(MAP["capability_qps"], config) == 256
    assert constant_value(MAP["magic"], config) == int.from_bytes(b"MRC1", "big")
    with pytest.raises(ValueError, match="must be a constant, got control"):
        constant_value(MAP["control"], config)


def test_config_hash_tells_configurations_apart():
    assert config_hash(NicConfig()) == config_hash(NicConfig.small())
    assert len({config_hash(c) for c in (NicConfig.small(), NicConfig.default(), NicConfig.large())}) == 3


def test_settings_have_registers():
    fields = [field.name for r in MAP if r.kind is RegisterKind.SETTING for field in r.fields]
    fields.remove("up")
    assert sorted([*fields, "port_up"]) == sorted(dict(iter(records.settings(NicConfig()))))


def test_pack_and_unpack():
    command = MAP["command"]
    value = command.pack(table=3, write=1, count=6, index=0x1234)
    assert value == 0x1234_0613
    assert command.unpack(value) == {"table": 3, "write": 1, "count": 6, "index": 0x1234}
    assert MAP["dscp_sent"].pack(dscp_control=0) == 0x000A0804
    with pytest.raises(ValueError, match=r"command.count must be between 0 and 0x1f, got 0x20"):
        command.pack(count=32)
    with pytest.raises(
        KeyError, match="register command has fields table, write, count, index; got 'colour'"
    ):
        command.pack(colour=1)


def test_addresses_of_arrays():
    assert MAP["port_next_hop_mac"].address(7, 1) == 0x17C
    assert MAP["own_address"].address(word=3) == 0x0BC
    with pytest.raises(IndexError, match="index of data must be between 0 and 31, got 32"):
        MAP["data"].address(32)
    with pytest.raises(IndexError, match="word of control must be between 0 and 0, got 1"):
        MAP["control"].address(word=1)
    with pytest.raises(KeyError, match="no register 'nothing'"):
        MAP["nothing"]


def test_the_page_is_current(tmp_path, capsys):
    assert (ROOT / DOCUMENT).read_text() == markdown()
    assert main(["--check", "--root", str(ROOT)]) == 0
    (tmp_path / "docs").mkdir()
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert "must equal what registers.rdl describes" in capsys.readouterr().out
    assert main(["--write", "--root", str(tmp_path)]) == 0
    assert main(["--check", "--root", str(tmp_path)]) == 0


def test_no_amaranth_is_imported():
    code = "import sys, mrc_rtl.registers as r; r.register_map(); sys.exit('amaranth' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT / "rtl", check=False).returncode == 0

"""Options of the model.

Sweep: every option, values inside and outside.
Stimulus: construction, mappings as experiment files give them.
Checks: every open question is answered by an option or a settled choice; messages; the documentation's table.
Timing: none.
"""

from pathlib import Path

import pytest

from mrc_host.errors import ConfigError
from mrc_host.model.options import OPTIONS, SETTLED, ModelOptions

PAGE = Path(__file__).parents[2] / "docs" / "golden-model.md"


def allowed(name):
    option = OPTIONS[name]
    if option.choices:
        return list(option.choices)
    if option.high > option.low:
        return [option.low, option.high]
    return [True, False] if not option.plug_in else ["mrc"]


def test_every_open_question_has_an_option_or_a_settled_choice():
    answered = {option.question for option in OPTIONS.values()} | set(SETTLED)
    assert {f"Q{number}" for number in range(1, 35)} <= answered
    assert set(ModelOptions().as_dict()) == set(OPTIONS)


@pytest.mark.parametrize("name", OPTIONS)
def test_values_inside_the_range_are_taken_and_others_named(name):
    for value in allowed(name):
        others = {"probe_interval_max_ns": 10**10} if name == "probe_interval_min_ns" else {}
        if name == "probe_interval_max_ns":
            others = {"probe_interval_min_ns": 1000}
        assert getattr(ModelOptions.from_mapping({name: value, **others}), name) == value
    for wrong in (-2, "nothing of the kind", None, 10**12):
        if OPTIONS[name].plug_in and isinstance(wrong, str):
            continue
        with pytest.raises(ConfigError, match=rf"model\.{name} must be"):
            ModelOptions.from_mapping({name: wrong})


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"model\.sprey must be a known option: udp_ports, "):
        ModelOptions.from_mapping({"sprey": "mrc"})


def test_intervals_of_probes_are_in_order():
    with pytest.raises(
        ConfigError, match=r"probe_interval_min_ns must be at most probe_interval_max_ns \(5000\)"
    ):
        ModelOptions(probe_interval_min_ns=6000, probe_interval_max_ns=5000)


def test_round_one_switches_off_what_the_first_gateware_lacks():
    options = ModelOptions.round_one()
    assert (options.loss_rule, options.congestion, options.recovery_probes) == ("none", "none", False)


def test_the_page_lists_every_option_with_its_default():
    rows = {line.split("`")[1]: line for line in PAGE.read_text().splitlines() if line.startswith("| `")}
    for name, option in OPTIONS.items():
        default = getattr(ModelOptions(), name)
        shown = str(default).lower() if isinstance(default, bool) else str(default)
        cells = [cell.strip() for cell in rows[name].strip("|").split("|")]
        assert (cells[1], cells[3], cells[4]) == (shown, option.text, option.question), name

"""The host's table of QP send contexts: commands to the sequencer."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import NicConfig
from ..stream import TableBus
from ..tables import QP_SEND, QpState
from .context import qp_settings, send_context

__all__ = ["QpTable", "command_fields", "host_command", "table_values"]


def host_command(config: NicConfig) -> data.StructLayout:
    """Write a QP's context from two table words, or read it."""
    return data.StructLayout({"qp": config.qp_bits, "write": 1, "word0": 64, "word1": 64})


def command_fields(command: data.View) -> dict[str, Value]:
    """The fields that a host command writes."""
    return {
        field.name: (command.word0, command.word1)[field.word][field.low : field.low + field.width]
        for field in QP_SEND.fields
        if not field.read_only
    }


def table_values(context: data.View, settings: data.View) -> list[Cat]:
    """The words of a QP_SEND entry as an expression of a send context and its settings."""
    source: dict[str, Value] = {
        "go_back_n": Const(0, 1),  # unless the settings have it
        **{name: settings[name] for name, _ in settings.shape()},
        "state": context.state,
        "next_psn": context.psns.next,
        "unacked_psn": context.psns.unacked,
        "attempt": context.progress.attempt,
    }
    words = []
    for word in range(QP_SEND.words):
        fields = sorted(
            (field for field in QP_SEND.fields if field.word == word), key=lambda field: field.low
        )
        parts, position = [], 0
        for field in fields:
            parts += [Signal(field.low - position, name=f"gap{position}")] if field.low > position else []
            parts.append(Cat(source[field.name], Const(0, field.width))[: field.width])
            position = field.low + field.width
        words.append(Cat(*parts))
    return words


class QpTable(wiring.Component):
    """Collects the two writable words of an entry and hands the sequencer one command.

    A write of RESET is answered when nothing of that QP is left in the engine, so that a new QP of the same
    number starts clean.

    Parameters
    ----------
    config : NicConfig

    Members
    -------
    table : TableBus
        QP_SEND.
    command : stream of host_command, out
    context, settings, refused
        With ``command.ready``: what the engine knows of the QP, and whether the command was not allowed.
    watch_qp, empty
        Count of what the engine holds of a QP.
    draining : 1
        A write of RESET waits.
    idle : 1

    Source: profile.md 7, design.md 4 rule 12.
    """

    def __init__(self, config: NicConfig) -> None:
        self.config = config
        super().__init__(
            {
                "table": In(TableBus()),
                "command": Out(stream.Signature(host_command(config))),
                "context": In(send_context(config)),
                "settings": In(qp_settings(config)),
                "refused": In(1),
                "watch_qp": Out(config.qp_bits),
                "empty": In(1),
                "draining": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        table = self.table
        command = self.command.payload
        word = Signal(4)
        error = Signal()
        words = table_values(self.context, self.settings)
        m.d.comb += [table.error.eq(error), self.watch_qp.eq(command.qp)]
        with m.FSM() as states:
            with m.State("IDLE"):
                m.d.comb += table.ready.eq(1)
                with m.If(table.valid):
                    m.d.sync += [
                        command.qp.eq(table.index),
                        command.write.eq(table.write),
                        word.eq(table.word),
                        error.eq(0),
                    ]
                    with m.If(table.write & (table.word == 0)):
                        m.d.sync += command.word0.eq(table.write_data)
                    with m.If(table.write & (table.word == 1)):
                        m.d.sync += command.word1.eq(table.write_data)
                    m.next = "COMMAND"
                    with m.If(table.write & ~table.last):
                        m.next = "DONE"
                    with m.If(table.index >= self.config.qps):
                        m.d.sync += error.eq(1)
                        m.next = "DONE"
            with m.State("COMMAND"):
                m.d.comb += self.command.valid.eq(1)
                with m.If(self.command.ready):
                    m.d.sync += error.eq(self.refused)
                    m.next = "DONE"
                    with m.If(command.write & ~self.refused & (command.word0[:3] == QpState.RESET)):
                        m.next = "DRAIN"
                    with m.If(~command.write):
                        with m.Switch(word):
                            for number, value in enumerate(words):
                                with m.Case(number):
                                    m.d.sync += table.read_data.eq(value)
                            with m.Default():
                                m.d.sync += error.eq(1)
            with m.State("DRAIN"):
                # The count shown belongs to the watched QP from the second cycle on.
                m.d.comb += self.draining.eq(1)
                m.next = "DRAINING"
            with m.State("DRAINING"):
                m.d.comb += self.draining.eq(1)
                with m.If(self.empty):
                    m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += table.done.eq(1)
                m.next = "IDLE"
        m.d.comb += self.idle.eq(states.ongoing("IDLE") & ~table.valid)
        return m

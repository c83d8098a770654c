"""What nvdisasm 13.5.37 prints of tests/data/cubins/13.5.37/two_entries-sm_90a.cubin, in part."""

from __future__ import annotations

from harness.judging.ptxas.sass import LiveRegisters, live_registers

TEXT = """\
	.section	.text.calls_helper,"ax",@progbits
                                                               // +-------+--------+--------+
                                                               // | GPR   | PRED   | UGPR   |
                                                               // |   #   |   #    |    #   |
                                                               // +-------+--------+--------+
        .global         calls_helper                           // |       |        |        |
.text.calls_helper:                                            // |       |        |        |
        /*0000*/                   LDC R1, c[0x0][0x28] ;      // |   1   |        |        |
        /*00a0*/                   LDCU.64 UR36, c[0x0] ;      // |   2   |        |    2   |
        /*00b0*/                   CALL.REL `($x) ;            // |  15   |   1    |   34   |
.L_x_5:                                                        // +.......+........+........+
        /*00e0*/                   EXIT ;                      // |       |        |        |
	.section	.text.uses_shared,"ax",@progbits
                                                               // | UGPR   | GPR   |
.text.uses_shared:                                             // |        |       |
        /*0000*/                   LDC R1, c[0x0][0x28] ;      // |   9    |   1   |
        /*10010*/                  S2R R7, SR_TID.X ;          // |        |   2   |
"""


def test_the_registers_of_a_thread_are_read_at_each_instruction() -> None:
    found = live_registers(TEXT)
    assert found == {
        "calls_helper": LiveRegisters((0, 0xA0, 0xB0, 0xE0), (1, 2, 15, 0)),
        "uses_shared": LiveRegisters((0, 0x10010), (1, 2)),
    }
    assert (found["calls_helper"].peak, found["calls_helper"].peak_address) == (15, 0xB0)


def test_a_disassembly_without_columns_has_none() -> None:
    bare = "\n".join(line.partition("//")[0] for line in TEXT.splitlines())
    assert live_registers(bare) == {}
    assert live_registers("") == {}

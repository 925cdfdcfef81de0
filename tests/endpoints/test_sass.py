"""Instruction streams: addresses, labels and padding do not count; registers only where asked."""

import pytest
import torch

from tests.endpoints.test_modules import SOURCE, THREE, needs_nvrtc
from verify.endpoints import Case, Endpoint, EndpointSpec, compare_endpoints
from verify.endpoints.modules import build_module
from verify.endpoints.result import SassCheck, State
from verify.endpoints.sass import compare_listings, read_streams, without_registers
from verify.errors import UsageError
from verify.gpu.compile.sass import disassemble, find_nvdisasm

LISTING = """
//--------------------- .text.add                 --------------------------
	.section	.text.add,"ax",@progbits
.text.add:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_3:
        /*0010*/                   LDG.E R2, desc[UR4][R2.64] ;
        /*0020*/                   FADD R7, R2, R5 ;  /* 0x1234 */
        /*0030*/              @!P0 BRA `(.L_x_3) ;
.L_9:
        /*0040*/                   EXIT ;
        /*0050*/                   NOP;
	.section	.nv.info,"",@"SHT_CUDA_INFO"
.L_10:
"""
STREAM = ["LDC R1, c[0x0][0x28]", "L0:", "LDG.E R2, desc[UR4][R2.64]", "FADD R7, R2, R5",
          "@!P0 BRA L0", "EXIT"]  # fmt: skip


def compared(a, b):
    check = SassCheck(a="a", b="b", state=State.NOT_RUN)
    compare_listings(check, a, b)
    return check


def test_a_stream_has_no_addresses_comments_padding_or_foreign_labels():
    assert read_streams(LISTING) == {"add": STREAM}


def test_registers_are_numbered_by_first_use():
    assert without_registers(["FADD R7, R2, R7", "@!P3 LDC UR4, c[0x0][0x28]"]) == [
        "FADD R0, R1, R0",
        "@!P0 LDC UR0, c[0x0][0x28]",
    ]


@pytest.mark.parametrize(
    ("old", "new", "state", "same_but_registers", "reason"),
    [
        (".L_x_3", ".L_x_71", State.PASSED, True, ""),
        ("/*0020*/", "/*0f20*/", State.PASSED, True, ""),
        ("R7", "R9", State.NOTED, True, "equal but for the numbers of registers: add"),
        ("R7, R2, R5", "R7, R5, R5", State.NOTED, False, "other instructions in add"),
        ("FADD R7", "FMUL R7", State.NOTED, False, "other instructions in add"),
        ("c[0x0][0x28]", "c[0x0][0x2c]", State.NOTED, False, "other instructions in add"),
        ("        /*0040*/                   EXIT ;\n", "", State.NOTED, False, "other instr"),
    ],
)
def test_what_counts_as_another_stream(old, new, state, same_but_registers, reason):
    check = compared(LISTING, LISTING.replace(old, new))
    (code,) = check.functions
    assert check.state is state and reason in check.reason
    assert code.same_but_registers is same_but_registers
    assert code.same is (state is State.PASSED)


def test_the_first_other_instruction_and_the_opcodes_are_named():
    (code,) = compared(LISTING, LISTING.replace("FADD R7", "FMUL R7")).functions
    assert (code.first, code.line_a, code.line_b) == (3, "FADD R7, R2, R5", "FMUL R7, R2, R5")
    assert code.opcodes == {"FADD": -1, "FMUL": 1}
    (short,) = compared(LISTING, LISTING.replace("EXIT ;", "NOP;")).functions
    assert (short.first, short.line_b, short.instructions_b) == (5, "", 4)


def test_functions_of_one_build_alone_are_named():
    check = compared(LISTING, LISTING + LISTING.replace("add", "sub"))
    assert check.state is State.NOTED and check.reason == "only in one of the builds: sub"


def test_the_only_function_of_each_is_compared_whatever_its_name():
    assert compared(LISTING, LISTING.replace("add", "plus")).functions[0].name == "add | plus"


def _spec(**builds):
    ends = {name: Endpoint(lambda x: x, build=build) for name, build in builds.items()}
    return EndpointSpec(endpoints=ends, cases=[Case("one", lambda: {"x": torch.ones(1)})])


def test_without_a_disassembler_it_is_refused_with_what_to_install(monkeypatch):
    monkeypatch.setattr("verify.endpoints.sass.find_nvdisasm", lambda: None)
    with pytest.raises(UsageError, match=r"pip install nvidia-cuda-nvdisasm[\s\S]*VERIFY_NVDISASM"):
        compare_endpoints(_spec(a=None, b=None), sass=True)


def test_endpoints_without_builds_are_not_run(monkeypatch):
    monkeypatch.setattr("verify.endpoints.sass.find_nvdisasm", lambda: "nvdisasm")
    result = compare_endpoints(_spec(a=None, b=None), sass=True)
    assert result.sass[0].reason == "a and b ran no build of machine code"
    assert result.exit_code == 3


@needs_nvrtc
def test_a_build_that_the_disassembler_does_not_read_is_not_run(monkeypatch, tmp_path):
    refuses = tmp_path / "nvdisasm"
    refuses.write_text("#!/bin/sh\nexit 1\n")
    refuses.chmod(0o755)
    monkeypatch.setenv("VERIFY_NVDISASM", str(refuses))
    build = build_module(SOURCE, "sm_90")
    result = compare_endpoints(_spec(a=build, b=build), sass=True)
    assert "does not read this architecture" in result.sass[0].reason and result.exit_code == 3


@needs_nvrtc
def test_real_builds():
    two, three = build_module(SOURCE, "sm_90"), build_module(SOURCE, "sm_90", defines=THREE)
    tool = find_nvdisasm()
    if tool is None or disassemble(two.cubin, tool) is None:
        pytest.skip("no nvdisasm that reads sm_90 (VERIFY_NVDISASM names one)")
    result = compare_endpoints(_spec(two=two, again=two, three=three), sass=True)
    again, other = result.sass
    assert again.state is State.PASSED and other.state is State.NOTED
    assert other.functions[0].opcodes == {"FADD": -1, "FMUL": 1}  # 2 x is x + x
    assert result.exit_code == 0


@needs_nvrtc
def test_an_endpoint_of_torch_beside_builds_is_noted(monkeypatch):
    monkeypatch.setattr("verify.endpoints.sass.find_nvdisasm", lambda: "nvdisasm")
    monkeypatch.setattr("verify.endpoints.sass.disassemble", lambda cubin, tool: LISTING)
    build = build_module(SOURCE, "sm_90")
    result = compare_endpoints(_spec(a=build, b=build, torch=None), sass=True)
    assert [check.state for check in result.sass] == [State.PASSED, State.NOTED]
    assert result.exit_code == 0

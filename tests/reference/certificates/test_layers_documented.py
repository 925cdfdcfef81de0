"""docs/numerics.md names every number and every check that a certificate prints."""

import re
from pathlib import Path

import numpy as np
import torch

from tests.support.layer_cases import Draw, correct_cases
from verify.reference.certificates.certify import certify, certify_pair
from verify.reference.certificates.selection import Select

TEXT = (Path(__file__).parents[3] / "docs" / "numerics.md").read_text(encoding="utf-8")


def test_numbers_and_checks_are_explained():
    case = next(iter(correct_cases(Draw(torch.bfloat16, 8, 64))))
    one = certify(case.output, case.inputs, case.op)
    pair = certify_pair(case.output, case.output, case.inputs, case.op)
    choice = certify(np.array([1]), {"logits": np.array([[0.0, 1.0]])}, Select())
    numbers = {*one.numbers, *pair.numbers, *choice.numbers}
    assert len(numbers) > 15  # guards against looking for nothing
    assert [name for name in sorted(numbers) if f"`{name}`" not in TEXT] == []
    mistakes = {variant.name for variant in case.op.mistakes(case.inputs)}
    checks = {check.name for check in one.checks} - mistakes
    missing = [name for name in sorted(checks) if name.removeprefix("gain ") not in TEXT]
    assert missing == []
    assert "difference in both budgets" in TEXT


def test_links_lead_somewhere():
    folder = Path(__file__).parents[3] / "docs"
    targets = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert len(targets) >= 2
    assert [target for target in targets if not (folder / target).exists()] == []

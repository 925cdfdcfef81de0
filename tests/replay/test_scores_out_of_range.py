"""An eager core that stores scores in float16 leaves its range on inputs that are too large: that is
told, and the operation that made the inputs is the one that is blamed."""

from verify.bisect.result import Verdict
from verify.selftest.fault import Place
from verify.selftest.judge import accused
from verify.selftest.module_faults import MODULE_FAULTS
from verify.selftest.sizes import Size
from verify.selftest.subject import Setup, Subject

LAYER = 5
CORE = f"model.layers.{LAYER}.self_attn.attn.out"


def test_the_core_is_not_blamed_for_the_size_of_its_scores(tmp_path):
    fault = next(f for f in MODULE_FAULTS if f.name == "norm missing")
    place = Place(layer=LAYER, head=0, size=Size.GROSS, seed=0)
    sides = Setup(dtype="fp16"), Setup(dtype="fp16", attn="eager")
    result = Subject("toy", tmp_path).bisect(*sides, lambda model: fault.plant(model, place))
    assert accused(result) == [f"model.layers.{LAYER}.input_layernorm.out"]
    told = [f for f in result.findings if CORE in f.taps and f.verdict is Verdict.UNRESOLVED]
    assert any("beyond 65504" in reason for finding in told for reason in finding.reasons)

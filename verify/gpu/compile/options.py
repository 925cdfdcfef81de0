"""What decides the code that NVRTC emits. All of it enters the build id."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Options of one compilation, by their NVRTC meaning.

    The defaults are IEEE: FP32 subnormals kept, division and square root rounded to nearest.
    ``fma`` lets the compiler contract a*b+c into one rounding, which every kernel here counts on.
    """

    std: str = "c++17"
    ftz: bool = False
    fma: bool = True
    prec_div: bool = True
    prec_sqrt: bool = True
    max_registers: int | None = None
    line_info: bool = False
    defines: tuple[tuple[str, str], ...] = ()

    def with_defines(self, *defines: tuple[str, str]) -> CompileOptions:
        """These options with macros added; a later definition of a name replaces the earlier."""
        merged = dict(self.defines) | dict(defines)
        return replace(self, defines=tuple(sorted(merged.items())))

    def as_dict(self) -> dict[str, object]:
        """The options as JSON values, in a fixed order."""
        return asdict(self)

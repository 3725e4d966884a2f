"""Tables in LaTeX."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decibo.errors import InputError
from decibo.formatting import latex_number, latex_plus_minus
from decibo.report import latex_table
from decibo.report.latex import latex_escape
from helpers.runs import curve, written

pytestmark = pytest.mark.quick

FALLING = 10.0 ** -np.linspace(0, 9, 91)


def test_latex(tmp_path):
    written(tmp_path / "a", curve(FALLING), label=r"50% of_$x$ & {\y}")
    written(tmp_path / "b", curve([1.0, np.inf]), label="b", status="diverged", message="Gone.")
    lines = latex_table(tmp_path).splitlines()
    assert [line for line in lines if "rule" in line] == [
        r"\toprule", r"\cmidrule(lr){4-7}", r"\midrule", r"\bottomrule",
    ]  # fmt: skip
    row = next(line for line in lines if line.startswith("50"))
    assert (
        row
        == r"50\% of\_\$x\$ \& \{\textbackslash{}y\} & done & $\mathbf{10^{-9}}$ & $\mathbf{200}$ &"
        r" $\mathbf{400}$ & $\mathbf{600}$ & $\mathbf{800}$ \\"
    )
    assert r"b & diverged & $\infty$ & -- & -- & -- & -- \\" in lines
    assert r"Run & Status & $\|\nabla\Phi\|^2$ & $10^{-2}$ &" in "\n".join(lines)
    # targets that nobody reached have no column
    assert r"{llrr}" in latex_table(tmp_path, targets=(1e-2, 1e-30))
    # 800 steps, 3 gradients, 4 agents
    assert "$9{,}600$" in latex_table(tmp_path / "a", axis="gradients")
    with pytest.raises(InputError, match="recorded measure must be one of stationarity"):
        latex_table(tmp_path, measure="phi")
    with pytest.raises(InputError, match="axis must be one of step, work, gradients"):
        latex_table(tmp_path, axis="money")


@given(st.text())
def test_no_special_character_survives_in_latex(text):
    rest = re.sub(r"\\(text\w+\{\}|[&%$#_{}])", "", latex_escape(text))
    assert not set(rest) & set('\\&%$#_{}~^<>|"\n\r\t\0')


def test_numbers_in_latex():
    assert latex_plus_minus(1160.0, 586.0) == r"$1{,}160 \pm 586$"
    assert latex_plus_minus(1e-8, 0.0) == r"$10^{-8} \pm 0$"
    assert [latex_number(v) for v in (0.0, 1234.0, 0.25, 1.23e-5, 1e-4, -2e7, None)] == [
        "$0$", "$1{,}234$", "$0.25$", r"$1.2 \times 10^{-5}$", "$10^{-4}$", r"$-2.0 \times 10^{7}$", "--",
    ]  # fmt: skip

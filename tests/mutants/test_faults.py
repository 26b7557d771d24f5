"""The deliberate faults of `make mutants` still fit the code that they break."""

import ast
from pathlib import Path

import pytest

from .run import ROOT, Fault, faults

FAULTS = faults()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_changes_code_into_other_code(fault: Fault, tmp_path: Path) -> None:
    before = (ROOT / fault.file).read_text(encoding="utf-8")
    copy = tmp_path / fault.file
    copy.parent.mkdir(parents=True)
    copy.write_text(before, encoding="utf-8")
    fault.inject(tmp_path)
    after = copy.read_text(encoding="utf-8")
    if copy.suffix == ".py":
        assert ast.dump(ast.parse(after)) != ast.dump(ast.parse(before))
    else:
        assert after != before


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_names_tests_that_exist(fault: Fault) -> None:
    assert fault.tests
    for test in fault.tests:
        file, *names = test.split("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        for name in names:
            own = name.split("[")[0]
            assert f"def {own}(" in text or f"class {own}(" in text


def test_no_two_faults_have_one_name() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names)

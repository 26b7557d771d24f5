"""The README is short, shows the tree as it is, and leads to pages that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len(README.splitlines()) <= 150


def test_the_picture_of_the_architecture_is_the_tree() -> None:
    picture = README[README.index("src/bilevel/\n") : README.index("A room imports")]
    drawn = set(re.findall(r"(?m)(?:^  |   |  )([a-z]+)/", picture))
    rooms = {path.parent.name for path in (ROOT / "src" / "bilevel").glob("*/__init__.py")}
    assert rooms <= drawn
    assert drawn - rooms <= {"updates", "inner", "linear"}  # which it draws inside of solvers/


def test_the_generated_pages_are_what_the_code_says() -> None:
    import runpy

    made = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    assert made["PAGE"].read_text(encoding="utf-8") == made["page"]()

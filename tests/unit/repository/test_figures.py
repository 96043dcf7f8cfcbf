"""The project stays as small as it says."""

from pathlib import Path

from tools.figures import Figure, figures


def test_no_figure_is_above_its_ceiling() -> None:
    assert [one for one in figures() if one.over] == []


def test_figures_are_counted(tmp_path: Path) -> None:
    files = {
        "api/a.py": "1\n2\n",
        "api/__pycache__/b.py": "1\n",
        "cli/.hidden/c.py": "1\n",
        "worker/d.py": "1\n",
        "shared/e.txt": "1\n",
        "bench/f.py": "1\n",
        "tests/deep/er/g.py": "1\n2\n3\n",
        "faults/h.py": "",
        "tools/i.py": "1\n",
        "compose.yaml": "1\n2\n",
        "deploy/k.yml": "1\n",
        "docs/glossary.md": "# Words\n\n| **one** | two |\n",
        "docs/decisions/README.md": "| [0001](a.md) | x |\n\n## Ended\n\n| [0002](b.md) | y |\n",
        "CHANGELOG.md": "x" * 2500,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    counted = {one.name: one.now for one in figures(tmp_path)}
    assert counted.pop("settings") > 0
    assert list(counted.values()) == [3, 1, 4, 3, 19, 2, 1, 1]


def test_a_figure_without_a_ceiling_is_never_above_it() -> None:
    assert [Figure("a", 5, ceiling).over for ceiling in (4, 5, None)] == [True, False, False]

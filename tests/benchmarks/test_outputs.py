"""A benchmark that is to write where nothing can be written says so in one line, before it begins to work."""

import re
import runpy
from pathlib import Path

import outputs
import pytest

FOLDER = Path(outputs.__file__).parent
PROGRAMS = sorted(p.name for p in FOLDER.glob("*.py") if '"--json"' in p.read_text(encoding="utf-8"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_output_that_can_not_be_written_is_refused_at_once(program, tmp_path, monkeypatch, capsys):
    path = tmp_path / "nowhere" / "out.json"
    monkeypatch.setattr("sys.argv", [str(FOLDER / program), "--json", str(path)])
    with pytest.raises(SystemExit) as refusal:
        runpy.run_path(str(FOLDER / program), run_name="__main__")
    assert re.fullmatch(rf"{program}: cannot write {path}: .*nowhere", refusal.value.code)
    assert capsys.readouterr() == ("", "")


def test_what_was_there_stays_until_the_work_is_done(tmp_path):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text("1")
    assert (outputs.writable(str(old)), outputs.writable(str(new))) == (old, new)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["1"]

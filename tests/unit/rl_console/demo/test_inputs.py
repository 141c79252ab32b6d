from pathlib import Path

from rl_console.demo.inputs import located
from rl_console.demo.settings import DemoSettings
from rl_console.tools import Tools


def settings(checkout: Path) -> DemoSettings:
    return DemoSettings(
        tools=Tools(), checkout=checkout, images={}, cache=checkout / "cache", out=checkout
    )


def test_an_edited_script_has_inputs_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "examples" / "arithmetic" / "make_data.py"
    script.parent.mkdir(parents=True)
    script.write_text("one")
    first = located(settings(tmp_path))
    assert located(settings(tmp_path)) == first
    assert not first.complete
    script.write_text("two")
    assert located(settings(tmp_path)).model != first.model

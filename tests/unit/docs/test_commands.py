from rl_console import reference
from tests.unit.docs.pages import ROOT


def test_the_page_of_commands_is_made_from_the_commands() -> None:
    written = (ROOT / "docs" / "reference" / "kubectl-rl.md").read_text()
    assert written == reference.page(), "run `make generate`"

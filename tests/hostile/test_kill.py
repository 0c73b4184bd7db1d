"""What is killed or interrupted and started again comes to the same end; ``kill.py`` tries more
moments than these.
"""

import random
import signal

import pytest
from hostile.kill import Place, killed, living, undisturbed
from processes import eventually

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("what", ["run", "reproduce"])
def test_a_kill_changes_nothing(what, tmp_path, mini_world):
    whole = undisturbed(what, tmp_path / "whole", mini_world)
    assert len(whole[0]) > 1
    assert not killed(what, tmp_path / "killed", mini_world, whole, random.Random(f"1 {what} 0"))


def test_an_interrupt_changes_nothing(tmp_path, mini_world):
    """Ctrl-C in a run that has a checkpoint: no traceback, and the run goes on from there."""
    whole = undisturbed("run", tmp_path / "whole", mini_world)
    place = Place(tmp_path / "interrupted", mini_world)
    place.folder.mkdir()
    with place.started("run", "interrupted") as process:
        assert eventually(
            lambda: list(place.folder.glob("runs/*/checkpoint.pt")) or process.poll() is not None
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert "Traceback" not in (place.folder / "said").read_text() and not living("interrupted")
    assert not place.finish("run", "interrupted")
    assert (place.numbers(), place.files()) == whole[:2]

"""The tables of docs/data.md say what the settings say."""

from pathlib import Path

from fedmuscle_lib.fedmuscle.profiles import PROFILES
from fedmuscle_lib.fedmuscle.setups import SETUPS

PAGE = (Path(__file__).parents[2] / "docs/data.md").read_text(encoding="utf8")


def test_every_users_model_is_the_profiles():
    section = PAGE.split("## Who has which model\n")[1].split("\n## ")[0]
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|")
    ]
    assert rows[0][3:] == ["mini", "small", "paper"]
    users = [[str(user.number), user.task, user.model] for user in SETUPS["setup2"]]
    assert rows[2:] == [
        [*user, *(PROFILES[name]["backbones"][user[2]] for name in rows[0][3:])] for user in users
    ]

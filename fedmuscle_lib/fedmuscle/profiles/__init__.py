"""Profiles, one TOML file each. A profile is numbers, names and paths; nothing outside asks which
profile it is.

A table ``[setups.<setup>]`` of a profile has numbers for this setup alone,
``[protocols.<protocol>]`` for this protocol, a table ``[places."<name>"]`` the settings of a place
of the notebook ``delta_map``. The table ``[options]`` has what was tuned of
single algorithms, by "<algorithm>.<option>"; the others do not see it. Beside a profile may lie
``<profile>_tuned.json``, which the notebook ``tuning`` makes: a recipe of local training for each
task that was tuned.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedmuscle_lib.core.files import read_json
from fedmuscle_lib.runs.settings import read_profiles

FOLDER = Path(__file__).parent


PROFILES = read_profiles(FOLDER)


def _taken_out(tables: str) -> dict[str, dict[str, dict[str, Any]]]:
    return {name: profile.pop(tables, {}) for name, profile in PROFILES.items()}


OF_SETUPS, OF_PROTOCOLS, PLACES = map(_taken_out, ("setups", "protocols", "places"))


def numbers_of(profile: str, setup: str, protocol: str = "fixed") -> dict[str, Any]:
    """The profile's settings for a setup and a protocol; those of a tuned one are
    :func:`tuned_tasks`.

    Raises:
        ValueError: the profile has no protocol "paper".
    """
    if protocol == "paper" and protocol not in OF_PROTOCOLS[profile]:
        raise ValueError(
            f"protocol: the profile {profile!r} has no other recipe of the paper than its fixed one"
        )
    return (
        PROFILES[profile]
        | OF_SETUPS[profile].get(setup, {})
        | OF_PROTOCOLS[profile].get(protocol, {})
    )


def tuned_tasks(profile: str) -> dict[str, Any]:
    """Return by task the tuned recipe, settings by name, and how it was chosen. Empty where the
    profile has nothing tuned.

    Raises:
        DataError: the file is no JSON; the message names it.
    """
    path = FOLDER / f"{profile}_tuned.json"
    return read_json(path) if path.exists() else {}

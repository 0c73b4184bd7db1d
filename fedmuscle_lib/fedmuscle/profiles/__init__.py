"""Profiles, one TOML file each. A profile is numbers, names and paths; nothing outside asks which
profile it is.

A table ``[setups.<setup>]`` of a profile has numbers for this setup alone,
``[protocols.<protocol>]`` for this protocol, a table ``[places."<name>"]`` the settings of a place
of the map of Delta (``ablations.run_map``). The table ``[options]`` has what was tuned of
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
    :func:`tuned_recipes`.

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


def tuned_file(profile: str) -> Path:
    """Return where a profile's tuned recipes lie, if it has any."""
    return FOLDER / f"{profile}_tuned.json"


def tuned_tasks(profile: str) -> dict[str, Any]:
    """Return by task the tuned recipe and how it was chosen. Empty where the
    profile has nothing tuned.

    Raises:
        DataError: the file is no JSON; the message names it.
    """
    path = tuned_file(profile)
    return read_json(path) if path.exists() else {}


def tuned_recipes(profile: str) -> dict[str, dict[str, Any]]:
    """The tuned recipes by task: settings by name."""
    return {task: chosen["recipe"] for task, chosen in tuned_tasks(profile).items()}


def tuned_protocol(profile: str) -> bool:
    """Return whether the profile has tuned recipes."""
    return tuned_file(profile).exists()

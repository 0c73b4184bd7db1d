"""The server of a federation as one process: from its file to the last round."""

from __future__ import annotations

from collections.abc import Callable

from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.network import keys
from fedmuscle_lib.network.aggregator import Aggregator
from fedmuscle_lib.network.history import History, alone, listed
from fedmuscle_lib.network.service import listening
from fedmuscle_lib.network.terms import Address, ServerFile


def serve(
    file: ServerFile,
    tell: Callable[[str], object] = print,
    began: Callable[[Address], object] = lambda _: None,
) -> History:
    """Do the rounds that are left, listening meanwhile; returns what happened, which the file's
    folder keeps.

    Args:
        tell: takes lines of progress.
        began: takes the address as soon as parties can come.

    Raises:
        ValueError: naming the field of the file that can't be.
        DataError: the public set, a key, a certificate or the folder's state can't be read.
        OSError: the address can't be listened at.
        Busy: another process uses the folder.
        Waited: too few parties came within a bound.
    """
    terms = file.agreed()
    public_keys = {user: keys.public_key(path) for user, path in sorted(file.users.items())}
    with alone(file.folder), fixed_state(file.threads):
        history = History(file.folder, terms)
        aggregator = Aggregator(terms, public_keys, history, file.bounds, tell)
        with listening(aggregator, file.address, file.certificate, file.key) as address:
            where = f"{terms.name!r} at {address}, {'without TLS' if file.insecure else 'over TLS'}"
            tell(
                f"{where}: round {history.finished + 1} of {terms.rounds} waits for"
                f" {listed(public_keys)}"
            )
            began(address)
            aggregator.run()
    return history

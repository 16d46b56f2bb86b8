"A checkpoint and a state that do not fit."

import pytest
from deduper_model import commit_marker

from dedup_nb.manifest.ledger import Ledger, ManifestError, Marker
from dedup_nb.streams.checkpoint import origin_of
from dedup_nb.streams.deduper_state import DedupState, find_micro_batch


def test_a_state_and_a_checkpoint_that_do_not_fit(tmp_path, monkeypatch):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id": "mine"}')
    for number in range(3):
        (tmp_path / f"offsets/{number}").write_text(f"rows of {number}")
    state, checkpoint = DedupState(str(tmp_path / "state")), str(tmp_path)

    def has(number, *markers):
        monkeypatch.setattr(DedupState, "_ledger", lambda self: Ledger(markers))
        return find_micro_batch(state, checkpoint, number) is not None

    mine = [commit_marker(n, **origin_of(checkpoint, n)) for n in range(2)]
    by_hand = Marker(9, "commit", "history", {"first_seq": 9, "token": "t"})
    assert [has(0), has(0, by_hand), has(1, *mine), has(2, *mine)] == [False, False, True, False]
    with pytest.raises(ManifestError, match="knows batches that are not of the checkpoint"):
        has(1, commit_marker(0, stream="other", offsets="x"))
    with pytest.raises(ManifestError, match="goes on with batch 2, and the state .* does not know the one"):
        has(2, mine[0])
    (tmp_path / "offsets/1").write_text("other rows")
    with pytest.raises(ManifestError, match="Batch 1 of the state .* now has other rows under its number"):
        has(1, *mine)
    # one that was split by hand
    with pytest.raises(ManifestError, match="knows batches that are not of the checkpoint"):
        has(1, commit_marker(0))
